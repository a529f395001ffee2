"""Brings the cluster up from any state: each step skips the work that is already done."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from tests.local_kubernetes import (
    containers,
    control_plane,
    fake_nodes,
    leftovers,
    node,
    node_images,
    programs,
)
from tests.local_kubernetes.errors import ClusterError
from tests.local_kubernetes.locks import alone, name_of
from tests.local_kubernetes.parts import Part, start
from tests.local_kubernetes.places import Places, write
from tests.local_kubernetes.progress import step
from tests.local_kubernetes.requirements import requirements

MODES = ("api", "node")


@dataclass(frozen=True)
class Shape:
    """The components of a cluster."""

    mode: str = "api"
    fake_nodes: int = 0

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ClusterError(f"a cluster's mode is one of {', '.join(MODES)}, not {self.mode!r}")

    @property
    def has_node(self) -> bool:
        return self.mode == "node"

    def __or__(self, other: Shape) -> Shape:
        """Returns the larger of the two in each respect."""
        return Shape(max(self.mode, other.mode), max(self.fake_nodes, other.fake_nodes))


def shape(places: Places) -> Shape | None:
    """Returns the shape of the current or last cluster, or None if there is none."""
    path = places.run / "shape.json"
    return Shape(**json.loads(path.read_text())) if path.exists() else None


def groups(places: Places, wanted: Shape) -> list[list[Part]]:
    """Returns the parts in start order. The parts of one group start in parallel."""
    scheduler = [control_plane.scheduler(places)] if wanted.has_node or wanted.fake_nodes else []
    return [
        [control_plane.etcd(places)],
        [control_plane.api_server(places, node=wanted.has_node)],
        [control_plane.controller_manager(places), *scheduler],
        *([[node.kubelet(places)], node.services(places)] if wanted.has_node else []),
        *([[fake_nodes.part(places)]] if wanted.fake_nodes else []),
    ]


def parts(places: Places, wanted: Shape) -> dict[str, Part]:
    """Returns all parts by name."""
    found = [part for group in groups(places, wanted) for part in group]
    if wanted.has_node:
        found.append(node.runtime(places))
    return {part.name: part for part in found}


def up(places: Places, wanted: Shape) -> Shape:
    """Returns the cluster's shape, which may be larger than `wanted` if the cluster was larger before."""
    reason = requirements(places)[wanted.mode]
    if reason is not None:
        raise ClusterError(reason)
    with alone(places, name_of(places.run)):
        programs.build(places)
        known = shape(places)
        if known is not None and not _lives(places, known):
            with step("remove what an earlier run left"):
                leftovers.sweep(places)
            known = None
        now = wanted if known is None else known | wanted
        if now.has_node:
            node.check_alone(places)
        write(places.run / "shape.json", json.dumps(asdict(now)))
        _bring_up(places, now)
        return now


def _bring_up(places: Places, wanted: Shape) -> None:
    control_plane.prepare(places)
    if wanted.has_node:
        node.prepare(places)
        _start_runtime(places)
    if wanted.fake_nodes:
        fake_nodes.prepare(places)
    for group in groups(places, wanted):
        start(group)
    if wanted.has_node:
        node.apply_storage_class(places)
    if wanted.fake_nodes:
        fake_nodes.add_nodes(places, wanted.fake_nodes)


def _start_runtime(places: Places) -> None:
    """Starts containerd, twice if it remembers containers of an earlier run, which a restart clears."""
    runtime = node.runtime(places)
    if not runtime.process.is_current():
        runtime.start()
        if not node.kubelet(places).process.running() and containers.remove_all(places):
            runtime.process.stop()
            runtime.start()
        pause = programs.directory(places) / "pause"
        node_images.add_program(places, node_images.pause(pause), pause)


def _lives(places: Places, known: Shape) -> bool:
    """Returns whether the cluster keeps its objects: etcd or the API server may be down, but not both."""
    core = (control_plane.etcd(places), control_plane.api_server(places, node=known.has_node))
    return any(part.process.running() for part in core)
