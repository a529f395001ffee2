"""Communication between processes: torch RPC (`Endpoint`), and HTTP for discovery (`MemberServer`)."""

from rltraining_trainer.transport.backoff import Backoff
from rltraining_trainer.transport.calls import Call, DeferredReply
from rltraining_trainer.transport.endpoint import Endpoint, Handler, Peer
from rltraining_trainer.transport.errors import (
    PeerLost,
    Refused,
    RemoteError,
    Stopped,
    TransportError,
    Unguarded,
    Unreachable,
    UnsupportedTorch,
)
from rltraining_trainer.transport.member_server import MemberServer, discover
from rltraining_trainer.transport.payload import Payload
from rltraining_trainer.transport.signals import on_stop_signal
from rltraining_trainer.transport.torch_rpc import host_of, unguarded
from rltraining_trainer.transport.traffic import Traffic

__all__ = [
    "Backoff",
    "Call",
    "DeferredReply",
    "Endpoint",
    "Handler",
    "MemberServer",
    "Payload",
    "Peer",
    "PeerLost",
    "Refused",
    "RemoteError",
    "Stopped",
    "Traffic",
    "TransportError",
    "Unguarded",
    "Unreachable",
    "UnsupportedTorch",
    "discover",
    "host_of",
    "on_stop_signal",
    "unguarded",
]
