"""Errors of the communication between two processes."""

from __future__ import annotations


class TransportError(Exception):
    """Base class of all errors of this package."""


class PeerLost(TransportError):
    """The peer is unreachable, disconnected or late: discover and dial again."""


class Refused(TransportError):
    """The peer does not accept this caller: the token is wrong. Dialling again cannot help."""


class RemoteError(TransportError):
    """The peer's handler raised, or could not read the request. The text describes the error."""


class Stopped(TransportError):
    """This process was asked to stop while it waited."""


class UnsupportedTorch(TransportError):
    """The installed torch is not a version that this transport was tested with."""


class Unreachable(TransportError):
    """This process would publish an address that no other machine can reach."""


class Unguarded(TransportError):
    """The RPC port would be open to other machines without the compiled gate."""
