"""Builds a job's status, its conditions and its events."""
