"""What can go wrong at the border to a cluster. Everything a `Cluster` raises is one of these."""

from __future__ import annotations


class ClusterError(Exception):
    """The cluster did not do what was asked. The reconcile is tried again, with back-off."""


class ConflictError(ClusterError):
    """The object changed, or another of its name exists: read again and decide anew."""


class NameTakenError(ConflictError):
    """A child's name is borne by an object that is not the job's; the message names it, and what to do about it."""


class NotFoundError(ClusterError):
    """The object does not exist."""


class UnavailableError(ClusterError):
    """The cluster does not answer, or asks for patience."""


class RejectedError(ClusterError):
    """The cluster refuses the object as it is (validation, quota, permission); the message is the cluster's own."""
