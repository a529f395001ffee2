"""kopf's part: it watches the jobs, and says which have changed. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import kopf
from rltraining_api.names import GROUP, KIND, PLURAL, VERSION

from rltraining_operator.cluster import Key
from rltraining_operator.kube.store import Store, key_of
from rltraining_operator.kube.watch import SILENCE_SECONDS, STREAM_SECONDS


def build_registry(
    store: Store, mark: Callable[[Key], None], end: Callable[[], Awaitable[None]]
) -> kopf.OperatorRegistry:
    """The one handler that matters: what is new goes into the store, and its key into the queue. Changes that are missed
    are found by the resync. `end` is called at SIGTERM, before kopf looks for tasks that were left behind."""
    registry = kopf.OperatorRegistry()

    @kopf.on.cleanup(registry=registry)
    async def clean_up(**_: Any) -> None:
        await end()

    @kopf.on.login(registry=registry)
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_via_client(**kwargs)

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
    async def changed(event: Any, **_: Any) -> None:
        found = event["object"]
        if event["type"] == "DELETED":
            store.remove(KIND, found)
            key = key_of(KIND, found["metadata"])
        else:
            key = store.put(KIND, dict(found))
        if key is not None:
            mark(key)

    return registry


class _KeepNothing(kopf.DiffBaseStorage, kopf.ProgressStorage):
    """kopf would copy each object at each change to tell what has changed: most of its work, and nobody asks."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence({})

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None: ...

    def purge(self, **_: Any) -> None: ...

    def touch(self, **_: Any) -> None: ...

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return essence


def build_settings() -> kopf.OperatorSettings:
    """kopf keeps nothing in the objects, posts nothing, scans for nothing, and gives up streams that fall silent."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.persistence.diffbase_storage = settings.persistence.progress_storage = _KeepNothing()
    settings.watching.server_timeout = STREAM_SECONDS
    settings.watching.client_timeout = STREAM_SECONDS + 10
    settings.watching.connect_timeout = 10
    settings.watching.inactivity_timeout = SILENCE_SECONDS
    settings.watching.chunk_size = 500
    settings.queueing.exit_timeout = 0.5
    settings.networking.error_backoffs = (0.5, 1, 2, *[5] * 1000)  # an API server that is away is waited for
    return settings
