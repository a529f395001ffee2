"""What can go wrong with checkpoints, besides a job that names an impossible place (BadConfiguration)."""

from __future__ import annotations


class CheckpointError(Exception):
    """A checkpoint could not be written or read: one sentence. Trying again later may help."""
