"""/healthz, /readyz and /metrics: what kubelets and Prometheus ask."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from rltraining_operator.kube.api import Api
from rltraining_operator.kube.watch import Watch

BEAT_SECONDS = 1.0
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


async def serve(port: int, health: Health, registry: CollectorRegistry) -> web.AppRunner:
    """Serve until the runner is cleaned up. Raises `OSError` when the port is taken."""

    async def probe(why_not: Callable[[], str]) -> web.Response:
        trouble = why_not()
        return web.Response(status=503 if trouble else 200, text=(trouble or "ok") + "\n")

    async def healthz(_: web.Request) -> web.Response:
        return await probe(health.ill)

    async def readyz(_: web.Request) -> web.Response:
        return await probe(health.unready)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), content_type="text/plain", charset="utf-8")

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, port=port).start()
    return runner
