"""Compares the results of several runs."""
