"""The one error of this package."""

from __future__ import annotations


class ClusterError(Exception):
    """One sentence: what is missing or did not come up, and what to do about it."""
