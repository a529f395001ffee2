"""Watches the jobs of the cluster with kopf. Each change goes into the cache and marks its job.

kopf exits on unexpected errors, such as rejected credentials or an error in a stream, and then
cancels all tasks of its event loop. It therefore runs in its own thread and loop, and is restarted.
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
"""Seconds of running after which an exit of kopf is a new problem and resets the back-off."""
END_SECONDS = 2.0
"""Seconds to wait for kopf to stop. Its thread does not delay the end of the process."""

log = logging.getLogger(__name__)
# Silence kopf's loggers, which log a warning at each start and two tracebacks at each end.
for _loud in ("running", "orchestration"):
    logging.getLogger(f"kopf._core.reactor.{_loud}").setLevel(logging.CRITICAL)


class JobsWatch:
    """Keeps the cached jobs equal to those of the server."""

    def __init__(
        self,
        api: Api,
        store: Store,
        mark: Callable[[Key], None],
        missed: Callable[[], None],
        *,
        namespaces: Sequence[str] = (),
    ) -> None:
        """Watches `namespaces`, or all if there are none. `missed` is called when deletions of jobs
        may have been missed. Both callables are called in the event loop of `run`."""
        self._api, self._store, self._mark, self._missed = api, store, mark, missed
        self._namespaces = tuple(namespaces)

    async def run(self) -> None:
        """Watches until cancelled. Restarts kopf after any error."""
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
            log.error("the watch of jobs has ended and restarts in %.1f s: %s", pause, _reason(error))
            log.debug("how kopf has ended", exc_info=error)
            await asyncio.sleep(pause)
            pause, again = min(pause * 2, BACKOFF_MAX_SECONDS), True

    async def _check_resource(self) -> None:
        """Checks that the server has the resource, since kopf would wait for it silently. Raises
        `NotFoundError`."""
        known = await self._api.get(f"/apis/{API_VERSION}")
        if not any(resource["name"] == PLURAL for resource in known["resources"]):
            raise NotFoundError(f"the cluster has no {CRD_NAME}")

    async def _live(self) -> BaseException | None:
        """Runs kopf once, and returns the exception that ended it."""
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
            # The operator's loop is closed, so the result is not needed.
            with suppress(RuntimeError):
                ours.call_soon_threadsafe(ended.set_result, error)

        threading.Thread(target=live, name="kopf", daemon=True).start()
        try:
            return await asyncio.shield(ended)
        except asyncio.CancelledError:
            with suppress(RuntimeError):  # kopf's loop is closed, so it has already ended
                its.call_soon_threadsafe(life.cancel)
            await asyncio.wait({ended}, timeout=END_SECONDS)
            raise

    async def _operate(self, ours: asyncio.AbstractEventLoop) -> None:
        """Runs kopf. Called in kopf's thread."""

        def hear(event: str | None, found: Mapping[str, Any]) -> None:
            copied = {**found, "metadata": dict(found["metadata"])}  # kopf still reads the original
            with suppress(RuntimeError):  # the operator's loop is closed
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
    """Logs exceptions of kopf's tasks. kopf handles the first of several failures, and the garbage
    collector reports the others."""
    log.debug("kopf: %s", context["message"], exc_info=context.get("exception"))


def _reason(error: BaseException | None) -> str:
    """Describes the root cause in one line."""
    while error is not None and error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}" if error is not None else "no error was reported"
