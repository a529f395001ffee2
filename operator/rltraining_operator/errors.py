"""Defines the exceptions of a `Cluster`. A `Cluster` raises no others."""

from __future__ import annotations


class ClusterError(Exception):
    """The cluster did not carry out a request. The pass is retried with back-off."""


class ConflictError(ClusterError):
    """The object has changed, or another object of its name exists: observe and plan again."""


class NameTakenError(ConflictError):
    """An object that does not belong to the job has a child's name. The message names the object
    and the remedy."""


class NotFoundError(ClusterError):
    """The object does not exist."""


class UnavailableError(ClusterError):
    """The cluster does not answer, or throttles requests."""


class RejectedError(ClusterError):
    """The cluster rejects the object (validation, quota, permission). The message is the
    cluster's."""
