"""Creates and connects the components of a running operator."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import Coroutine
from typing import Any

from rltraining_api.names import CRD_NAME, KIND

from rltraining_operator.engine import Engine, cancel, first_of, utc_now
from rltraining_operator.errors import ClusterError, NotFoundError, UnavailableError
from rltraining_operator.kube.api import Api
from rltraining_operator.kube.cluster import KubernetesCluster
from rltraining_operator.kube.config import Config
from rltraining_operator.kube.events import EventWriter
from rltraining_operator.kube.health import Health, serve
from rltraining_operator.kube.http_server import HttpServer
from rltraining_operator.kube.jobs_watch import JobsWatch
from rltraining_operator.kube.lease import Lease
from rltraining_operator.kube.metrics import Metrics, StateCollector
from rltraining_operator.kube.paths import collection
from rltraining_operator.kube.releases import Releases
from rltraining_operator.kube.reports import Reports
from rltraining_operator.kube.rivals import status_manager
from rltraining_operator.kube.store import Store
from rltraining_operator.kube.tokens import Tokens, load_key
from rltraining_operator.kube.watch import Watch

SPACING_SECONDS = 1.0
"""Minimum seconds between two passes of one job. A burst of changes, such as a hundred new pods,
causes one write of the status per second."""
DRAIN_SECONDS = 3.0
"""Seconds for which queued events are still written at the end."""
START_SECONDS, START_PAUSE_SECONDS = 120.0, 1.0
"""Seconds to wait for an unavailable API server at the start, and the interval of attempts."""

log = logging.getLogger(__name__)


class StartError(Exception):
    """The operator cannot start. The message gives the reason and the remedy."""


async def run_operator(config: Config) -> None:
    """Works until SIGTERM or SIGINT. Raises `StartError`, and the exception of any component that
    ends unexpectedly."""
    # Create the clients and the cache.
    namespaces = config.namespaces or ("",)
    metrics, store = Metrics(), Store()
    api = Api(qps=config.qps, burst=config.burst, request_seconds=config.request_seconds, meter=metrics)
    apart = Api(qps=10.0, burst=10, request_seconds=config.request_seconds, meter=metrics)
    """A separate client for the lease, so that waiting requests do not delay its renewal."""
    host = os.environ.get("POD_NAME") or socket.gethostname()
    events = EventWriter(api, utc_now, host)
    reports = Reports()
    manager = status_manager(_lease_namespace(config), config.leader_election.lease_name)
    lease = Lease(
        apart,
        config.leader_election,
        namespace=_lease_namespace(config),
        identity=host,
        serves=config.namespaces,
    )
    releases = Releases(
        apart,
        lease,
        manager,
        namespaces=config.namespaces,
        lease_seconds=config.leader_election.lease_seconds,
        retry_seconds=config.leader_election.retry_seconds,
        changed=lambda: engine.resync(),
    )
    cluster = KubernetesCluster(
        api,
        store,
        events,
        reports,
        metrics,
        namespaces=config.namespaces,
        manager=manager,
        releases=releases,
    )
    # Create the engine and the watches that mark changed jobs.
    engine = Engine(
        cluster,
        settings=config.settings,
        workers=config.workers,
        resync_seconds=config.resync_seconds,
        spacing_seconds=SPACING_SECONDS,
        meter=metrics,
    )
    watches = [Watch(api, store, engine.mark, namespace) for namespace in namespaces]
    jobs = JobsWatch(api, store, engine.mark, engine.resync, namespaces=config.namespaces)
    reports.mark = engine.mark
    cluster.pods_synced = {
        namespace: watch.synced for namespace, watch in zip(namespaces, watches, strict=True)
    }
    # Create metrics, health checks and leader election.
    metrics.registry.register(StateCollector(store, watches, lambda: engine.depth))
    health = Health(api, watches, lambda: releases.refusal)

    # Serve HTTP, and stop on signals.
    server = _serve(config, health, metrics)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    # Watch pods, then load the key and check the CRD, then watch jobs and lead.
    parts = [_part(stop, watch.run(), "watch of pods") for watch in watches]
    parts += [_part(stop, events.run(), "events"), _part(stop, health.run(), "health")]
    try:
        await first_of(_prepare(api, config, cluster), stop.wait())
        if not stop.is_set():
            parts.append(_part(stop, jobs.run(), "watch of jobs"))
            parts.append(_part(stop, _lead(config, lease, releases, engine, metrics), "leader"))
        await stop.wait()
        for part in parts:
            if part.done() and not part.cancelled():
                part.result()
    finally:
        # Stop the components in order, and write the remaining events.
        await cancel(parts)
        await events.drain(DRAIN_SECONDS)
        await server.close()
        await apart.close()
        await api.close()


async def _lead(config: Config, lease: Lease, releases: Releases, engine: Engine, metrics: Metrics) -> None:
    """Runs the engine whenever this replica leads."""
    if not config.leader_election.enabled:
        metrics.leader.set(1)
        await engine.run()
        return
    try:
        while True:
            await lease.acquire()
            metrics.leader.set(1)
            try:
                await first_of(engine.run(), lease.hold(), releases.run())
            finally:
                metrics.leader.set(0)
    finally:
        await lease.release()


def _part(stop: asyncio.Event, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Starts a component that runs as long as the operator. If it ends, the operator stops."""
    task = asyncio.create_task(work, name=name)

    def ended(_: asyncio.Task[None]) -> None:
        if not task.cancelled():
            log.log(logging.ERROR if task.exception() else logging.INFO, "%s has ended", name)
        stop.set()

    task.add_done_callback(ended)
    return task


def _serve(config: Config, health: Health, metrics: Metrics) -> HttpServer:
    try:
        return serve(config.http_port, health, metrics.registry)
    except OSError as error:
        raise StartError(f"port {config.http_port} (httpPort) cannot be served: {error.strerror}") from error


async def _prepare(api: Api, config: Config, cluster: KubernetesCluster) -> None:
    """Prepares everything that the first pass needs. Raises `StartError`."""
    await _check_resource(api, config.namespaces or ("",))
    namespace = config.key_secret.namespace or _own_namespace()
    give_up = time.monotonic() + START_SECONDS
    while True:
        try:
            key = await load_key(api, namespace, config.key_secret.name)
        except ClusterError as error:
            if not isinstance(error, UnavailableError) or time.monotonic() > give_up:
                name = f"{namespace}/{config.key_secret.name}"
                raise StartError(f"the operator's key, in Secret {name}, cannot be read: {error}") from error
            await asyncio.sleep(START_PAUSE_SECONDS)
        else:
            cluster.tokens = Tokens(key)
            return


async def _check_resource(api: Api, namespaces: tuple[str, ...]) -> None:
    """Checks that jobs can be listed, since kopf would wait silently for a missing resource.
    Retries while the server is unavailable, because a pod that exits now would be restarted with
    increasing delays. Listing jobs in one namespace suffices. Raises `StartError`."""
    give_up = time.monotonic() + START_SECONDS
    while True:
        errors = [error for namespace in namespaces if (error := await _cannot_list(api, namespace))]
        for error in errors:
            log.warning("jobs cannot be listed: %s", error)
        if len(errors) < len(namespaces):
            return
        if any(isinstance(error, NotFoundError) for error in errors):
            raise StartError(
                f"the cluster has no {CRD_NAME}: install the chart with crds.install=true, or apply the CRD"
            )
        away = any(isinstance(error, UnavailableError) for error in errors)
        if not away or time.monotonic() > give_up:
            raise StartError(f"jobs cannot be listed: {errors[0]}")
        await asyncio.sleep(START_PAUSE_SECONDS)


async def _cannot_list(api: Api, namespace: str) -> ClusterError | None:
    try:
        await api.get(collection(KIND, namespace), {"limit": "1"})
    except ClusterError as error:
        return error
    return None


def _lease_namespace(config: Config) -> str:
    return config.leader_election.lease_namespace or _own_namespace()


def _own_namespace() -> str:
    return os.environ.get("POD_NAMESPACE") or "default"
