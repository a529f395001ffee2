"""A part of the cluster: a background program and its readiness check."""

from __future__ import annotations

import ssl
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tests.local_kubernetes.places import Places
from tests.local_kubernetes.processes import Process
from tests.local_kubernetes.progress import step, wait


@dataclass(frozen=True)
class Part:
    process: Process
    ready: Callable[[], bool]
    """The readiness check, which may raise OSError while the part is not ready."""

    seconds: float = 60.0
    """Time limit until the part is ready."""

    @property
    def name(self) -> str:
        return self.process.name

    def start(self) -> None:
        """Starts the part unless it runs as required, and waits until it is ready."""
        start([self])

    def is_ready(self) -> bool:
        try:
            return self.process.running() is not None and self.ready()
        except OSError:
            return False


def start(parts: Iterable[Part]) -> None:
    """Starts all parts that do not run as required, in parallel, then waits until each is ready."""
    parts = list(parts)
    started = {part.name for part in parts if part.process.start()}
    for part in parts:
        if part.name in started or not part.is_ready():
            with step(part.name):
                wait(part.name, part.ready, seconds=part.seconds, alive=part.process.ended)


def answers(url: str, places: Places | None = None) -> Callable[[], bool]:
    """Returns a check that a GET of the URL returns 200; as the administrator if `places` are given."""

    def ask() -> bool:
        context = tls(places) if url.startswith("https:") else None
        with urllib.request.urlopen(url, timeout=2, context=context) as answer:
            return bool(answer.status == 200)

    return ask


def tls(places: Places | None) -> ssl.SSLContext:
    """Returns the administrator's TLS context.

    Without `places`, returns a context without credentials for a part with a self-signed certificate.
    """
    context = ssl.create_default_context(cafile=str(places.certificates / "ca.crt") if places else None)
    if places is not None:
        context.load_cert_chain(places.certificates / "admin.crt", places.certificates / "admin.key")
    else:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
