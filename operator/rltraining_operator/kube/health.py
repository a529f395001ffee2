"""Serves /healthz, /readyz and /metrics for kubelets and Prometheus."""

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
"""Age in seconds up to which metrics are served again."""
STUCK_SECONDS = 30.0
"""Seconds without an iteration after which the event loop is stuck."""
DEAF_SECONDS = 240.0
"""Seconds without a sign after which a watch is broken, since even a failing watch gives signs."""
SILENT_SECONDS = 60.0
"""Seconds without an answer of the API server after which the operator is not ready."""


class Health:
    """Checks this process. Readiness: the API server answers, and no job is left to an older release.
    Liveness: the event loop and the watches work."""

    def __init__(self, api: Api, watches: Iterable[Watch], refusal: Callable[[], str] = str) -> None:
        """`refusal` returns why this operator leaves jobs to another one, or an empty string."""
        self._api, self._watches, self._refusal = api, tuple(watches), refusal
        self._beat = time.monotonic()

    async def run(self) -> None:
        """Records a heartbeat of the event loop until cancelled."""
        while True:
            self._beat = time.monotonic()
            await asyncio.sleep(BEAT_SECONDS)

    def ill(self) -> str:
        """Returns why the process should be restarted, or an empty string."""
        now = time.monotonic()
        if now - self._beat > STUCK_SECONDS:
            return f"the event loop has been blocked for {now - self._beat:.0f} s"
        deaf = [now - watch.last_sign for watch in self._watches if now - watch.last_sign > DEAF_SECONDS]
        return f"the watch of pods has sent nothing for {max(deaf):.0f} s" if deaf else ""

    def unready(self) -> str:
        """Returns why the process cannot work now, or an empty string."""
        if not any(watch.synced.is_set() for watch in self._watches):
            return "the pods are not listed yet"
        silent = time.monotonic() - self._api.last_answer
        if silent > SILENT_SECONDS:
            return f"the API server has not answered for {silent:.0f} s"
        return self._refusal()


def serve(port: int, health: Health, registry: CollectorRegistry) -> HttpServer:
    """Serves until the server is closed. Raises `OSError` if the port is taken."""
    metrics = _Scrapes(registry)

    def probe(problem: str) -> Answer:
        return Answer(503 if problem else 200, f"{problem or 'ok'}\n".encode())

    return HttpServer(
        port,
        {
            "/healthz": lambda: probe(health.ill()),
            "/readyz": lambda: probe(health.unready()),
            "/metrics": lambda: Answer(200, metrics.text(), CONTENT_TYPE_PLAIN_0_0_4),
        },
    )


class _Scrapes:
    """Renders the metrics at most once per second, for any number of scrapes, since that reads all
    jobs."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._text, self._made = b"", float("-inf")

    def text(self) -> bytes:
        """Returns all metrics in Prometheus' text format."""
        now = time.monotonic()
        if now - self._made >= SCRAPE_SECONDS:
            self._text, self._made = generate_latest(self._registry), now
        return self._text
