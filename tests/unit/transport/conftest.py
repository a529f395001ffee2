"""An endpoint that dials itself over a socket in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from rltraining_trainer.transport import Endpoint, Handler


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Endpoint]]:
    """``serve(services, **options)`` returns a started endpoint on this machine's loopback."""
    monkeypatch.setenv("TP_SOCKET_IFNAME", "lo")
    started: list[Endpoint] = []

    def start(services: Mapping[str, Handler] | None = None, **options: Any) -> Endpoint:
        endpoint = Endpoint("job-member-0", "secret", services, **options)
        endpoint.start()
        started.append(endpoint)
        return endpoint

    yield start
    for endpoint in started:
        endpoint.stop()
