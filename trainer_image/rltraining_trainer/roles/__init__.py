"""The program of learners, samplers and replay pods: reads the job and runs a function of its algorithm.

Read main.py and entry_point.py here, then one file of ``algorithms`` from top to bottom.
"""
