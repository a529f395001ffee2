"""kopf's part: it watches the jobs, and says which have changed. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import kopf
from rltraining_api.names import GROUP, PLURAL, VERSION

from rltraining_operator.kube.watch import SILENCE_SECONDS, STREAM_SECONDS

Hear = Callable[[str | None, Mapping[str, Any]], None]
"""Takes the type of an event (None: the object was found in a list) and the object."""


def build_registry(hear: Hear) -> kopf.OperatorRegistry:
    """The one handler that matters hands each event over to `hear`, which is called in kopf's thread."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry, errors=kopf.ErrorsMode.PERMANENT)
    async def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        """Reads the token anew each time. Not to be had, it ends kopf, which begins again sooner than kopf would retry."""
        return kopf.login_via_client(**kwargs)

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
    async def changed(event: Any, **_: Any) -> None:
        hear(event["type"], event["object"])

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
    settings.process.ultimate_exiting_timeout = None  # it would kill the whole process
    settings.networking.request_timeout = 30
    settings.networking.error_backoffs = (0.5, 1, 2, *[5] * 1000)  # an API server that is away is waited for
    return settings
