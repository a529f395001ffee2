"""The jobs of the cluster, watched by kopf: each change goes into the store and marks its job.

kopf ends at what it does not expect, as credentials that are refused or an error in a stream, and cancels then whatever
it finds in its event loop. So it has a thread and a loop of its own, and begins again.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import kopf
from rltraining_api.names import API_VERSION, CRD_NAME, KIND, PLURAL

from rltraining_operator.cluster import Key
from rltraining_operator.errors import NotFoundError
from rltraining_operator.kube.api import Api
from rltraining_operator.kube.handlers import build_registry, build_settings
from rltraining_operator.kube.store import Store, key_of

BACKOFF_SECONDS, BACKOFF_MAX_SECONDS = 0.5, 15.0
LASTING_SECONDS = 60.0
"""An end of kopf after so long is a new trouble, not the last one once more."""
END_SECONDS = 2.0
"""How long kopf, asked to end, is waited for; its thread does not hold up the end of the process."""

log = logging.getLogger(__name__)
for _loud in ("running", "orchestration"):  # a warning at each start, two tracebacks at each end
    logging.getLogger(f"kopf._core.reactor.{_loud}").setLevel(logging.CRITICAL)


class JobsWatch:
    """Keeps the store's jobs as the server has them."""

    def __init__(
        self,
        api: Api,
        store: Store,
        mark: Callable[[Key], None],
        missed: Callable[[], None],
        *,
        namespaces: Sequence[str] = (),
    ) -> None:
        """Without `namespaces`: of all. `missed` is called when jobs may have been deleted that nobody watched. Both
        callables are called in the event loop that `run` runs in."""
        self._api, self._store, self._mark, self._missed = api, store, mark, missed
        self._namespaces = tuple(namespaces)

    async def run(self) -> None:
        """Watch until cancelled, whatever ends kopf."""
        pause, again = BACKOFF_SECONDS, False
        while True:
            began = time.monotonic()
            try:
                await self._check_resource()
                if again:
                    self._missed()
                error = await self._live()
            except Exception as raised:
                error = raised
            if time.monotonic() - began > LASTING_SECONDS:
                pause = BACKOFF_SECONDS
            log.error("the watch of jobs has ended, and begins again in %.1f s: %s", pause, _reason(error))
            log.debug("how kopf has ended", exc_info=error)
            await asyncio.sleep(pause)
            pause, again = min(pause * 2, BACKOFF_MAX_SECONDS), True

    async def _check_resource(self) -> None:
        """kopf would wait in silence for a resource that the server does not know."""
        known = await self._api.get(f"/apis/{API_VERSION}")
        if not any(resource["name"] == PLURAL for resource in known["resources"]):
            raise NotFoundError(f"the cluster has no {CRD_NAME}")

    async def _live(self) -> BaseException | None:
        """One life of kopf; what ended it."""
        ours, runner = asyncio.get_running_loop(), asyncio.Runner(loop_factory=asyncio.new_event_loop)
        its = runner.get_loop()
        its.set_exception_handler(_left_behind)
        life = its.create_task(self._operate(ours))
        ended: asyncio.Future[BaseException | None] = ours.create_future()

        def live() -> None:
            error: BaseException | None = None
            try:
                with runner:
                    its.run_until_complete(life)
            except BaseException as raised:
                error = raised
            with suppress(RuntimeError):  # our loop is closed: nobody waits any more
                ours.call_soon_threadsafe(ended.set_result, error)

        threading.Thread(target=live, name="kopf", daemon=True).start()
        try:
            return await asyncio.shield(ended)
        except asyncio.CancelledError:
            with suppress(RuntimeError):  # its loop is closed: it has just ended
                its.call_soon_threadsafe(life.cancel)
            await asyncio.wait({ended}, timeout=END_SECONDS)
            raise

    async def _operate(self, ours: asyncio.AbstractEventLoop) -> None:
        """In kopf's thread."""

        def hear(event: str | None, found: Mapping[str, Any]) -> None:
            copied = {**found, "metadata": dict(found["metadata"])}  # kopf goes on reading its own
            with suppress(RuntimeError):  # our loop is closed: nobody listens any more
                ours.call_soon_threadsafe(self._note, event, copied)

        await kopf.operator(
            registry=build_registry(hear),
            settings=build_settings(),
            clusterwide=not self._namespaces,
            namespaces=self._namespaces,
        )

    def _note(self, event: str | None, found: dict[str, Any]) -> None:
        if event == "DELETED":
            self._store.remove(KIND, found)
            key = key_of(KIND, found["metadata"])
        else:
            key = self._store.put(KIND, found)
        if key is not None:
            self._mark(key)


def _left_behind(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Of tasks that fail together kopf hears one; what became of the others is told by whoever collects the garbage."""
    log.debug("kopf: %s", context["message"], exc_info=context.get("exception"))


def _reason(error: BaseException | None) -> str:
    """What began it all, in one line."""
    while error is not None and error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}" if error is not None else "it said nothing"
