"""What can go wrong between two processes. Everything a caller may have to handle is a ``TransportError``."""

from __future__ import annotations


class TransportError(Exception):
    """Base of all errors of this room."""


class PeerLost(TransportError):
    """The other side cannot be reached, or went away, or is silent for too long: discover and dial again."""


class Refused(TransportError):
    """The other side does not accept this caller: the token is wrong. Dialling again cannot help."""


class RemoteError(TransportError):
    """The other side's handler raised, or could not read the request; the text says what."""


class Stopped(TransportError):
    """This process was asked to stop while it waited."""


class UnsupportedTorch(TransportError):
    """The installed torch is not the one this transport was proven with."""


class Unreachable(TransportError):
    """This process would publish an address that no other machine can reach."""


class Unguarded(TransportError):
    """The RPC port would be open to other machines without the compiled gate."""
