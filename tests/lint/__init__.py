"""Checks of what people read and of what no test runs: pages, comments, queries, Dockerfiles. Run by `make lint`.

Each check is a generator of problems. It compares files with each other or with the code, and starts no program.
"""
