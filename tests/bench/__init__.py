"""The measured claims, each as a command that prints a table.

Run ``make bench`` or ``python -m tests.bench NAME...``.
"""
