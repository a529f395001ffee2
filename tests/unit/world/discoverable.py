"""A member that other members of this process find over real sockets."""

from __future__ import annotations

from rltraining_api.contract import RENDEZVOUS_PATH
from rltraining_trainer.transport import Endpoint, MemberServer


class Discoverable:
    """Serves an endpoint, and its URL as a learner does. There is no document while the endpoint is stopped."""

    def __init__(self, endpoint: Endpoint) -> None:
        endpoint.start()
        self.endpoint = endpoint
        documents = {RENDEZVOUS_PATH: lambda: {"url": endpoint.url} if endpoint.url else None}
        self._http = MemberServer(0, "secret", ready=lambda: True, documents=documents)
        self._http.start()
        self.url = f"http://127.0.0.1:{self._http.port}"

    def close(self) -> None:
        self._http.stop()
        self.endpoint.stop()
