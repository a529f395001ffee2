"""The only error class of this package."""

from __future__ import annotations


class ClusterError(Exception):
    """States in one sentence which part is missing or did not start, and how to fix it."""
