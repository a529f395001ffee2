"""/healthz, /readyz and /metrics: what kubelets and Prometheus ask."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from rltraining_operator.kube.api import Api
from rltraining_operator.kube.http_server import Answer, HttpServer
from rltraining_operator.kube.watch import Watch

BEAT_SECONDS = 1.0
SCRAPE_SECONDS = 1.0
"""Metrics of this age are served again."""
STUCK_SECONDS = 30.0
"""An event loop that has not come round for so long will not come round."""
DEAF_SECONDS = 240.0
"""A watch that was not heard of for so long is broken: it should at least have complained."""
SILENT_SECONDS = 60.0
"""An operator that the API server has not answered for so long is not ready: it cannot do its work."""


class Health:
    """Is this process of use? Readiness: the API server answers it. Liveness: its own wheels turn."""

    def __init__(
        self, api: Api, watches: Iterable[Watch], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._api, self._watches, self._clock = api, tuple(watches), clock
        self._beat = clock()

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            self._beat = self._clock()
            await asyncio.sleep(BEAT_SECONDS)

    def ill(self) -> str:
        """Why the process should be started anew; empty: it is well."""
        now = self._clock()
        if now - self._beat > STUCK_SECONDS:
            return f"the event loop has not come round for {now - self._beat:.0f} s"
        deaf = [now - watch.last_sign for watch in self._watches if now - watch.last_sign > DEAF_SECONDS]
        return f"the watch of pods was not heard of for {max(deaf):.0f} s" if deaf else ""

    def unready(self) -> str:
        """Why it cannot do its work now; empty: it can."""
        if not any(watch.synced.is_set() for watch in self._watches):
            return "the pods are not listed yet"
        silent = self._clock() - self._api.last_answer
        return f"the API server has not answered for {silent:.0f} s" if silent > SILENT_SECONDS else ""


def serve(port: int, health: Health, registry: CollectorRegistry) -> HttpServer:
    """Serve until the server is closed. Raises `OSError` when the port is taken."""
    metrics = _Scrapes(registry)

    def probe(trouble: str) -> Answer:
        return Answer(503 if trouble else 200, f"{trouble or 'ok'}\n".encode())

    return HttpServer(
        port,
        {
            "/healthz": lambda: probe(health.ill()),
            "/readyz": lambda: probe(health.unready()),
            "/metrics": lambda: Answer(200, metrics.text(), CONTENT_TYPE_PLAIN_0_0_4),
        },
    )


class _Scrapes:
    """What Prometheus reads, made at most once a second however often it is asked for: it goes through all jobs."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._text, self._made = b"", float("-inf")

    def text(self) -> bytes:
        """All metrics, in Prometheus' text format."""
        now = time.monotonic()
        if now - self._made >= SCRAPE_SECONDS:
            self._text, self._made = generate_latest(self._registry), now
        return self._text
