"""Configures kopf, which watches the jobs and reports changes. No decisions are made here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import kopf
from rltraining_api.names import GROUP, PLURAL, VERSION

from rltraining_operator.kube.watch import SILENCE_SECONDS, STREAM_SECONDS

Hear = Callable[[str | None, Mapping[str, Any]], None]
"""Receives the type of an event (None: the object was found in a list) and the object."""


def build_registry(hear: Hear) -> kopf.OperatorRegistry:
    """Returns kopf's handlers. One passes each event to `hear`, which is called in kopf's
    thread."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry, errors=kopf.ErrorsMode.PERMANENT)
    async def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        """Reads the token again at each login. A failure ends kopf, which is restarted sooner than
        kopf would retry."""
        return kopf.login_via_client(**kwargs)

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
    async def changed(event: Any, **_: Any) -> None:
        hear(event["type"], event["object"])

    return registry


class _KeepNothing(kopf.DiffBaseStorage, kopf.ProgressStorage):
    """Stores nothing. Otherwise kopf would copy each object at each change to compute a diff that
    is not used, which would be most of its work."""

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
    """Returns settings with which kopf stores nothing in objects, posts no events, does not scan,
    and abandons silent streams."""
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
    settings.process.ultimate_exiting_timeout = None  # otherwise kopf would kill the whole process
    settings.networking.request_timeout = 30
    # Retry until the API server is back.
    settings.networking.error_backoffs = (0.5, 1, 2, *[5] * 1000)
    return settings
