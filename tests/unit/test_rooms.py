"""Checks the imports of each room, that is, of each distribution.

A room imports the standard library, itself, and the dependencies in its pyproject.toml. Some
dependencies are forbidden to a room, so that the trainer image stays free of the operator and vice
versa. Within the trainer, each part has further import rules.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import deque
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]


class Room(NamedTuple):
    folder: str
    package: str
    never: frozenset[str]
    """Top-level modules that are forbidden even if pyproject.toml declares them."""


COMES_WITH = {"pydantic-core": "pydantic"}
"""Distributions that another distribution includes."""

CLUSTER = frozenset({"kopf", "kubernetes", "kubernetes_asyncio"})
LEARNING = frozenset({"torch", "gymnasium", "numpy"})
PEOPLE = frozenset({"typer", "rich", "plotext", "matplotlib"})

ROOMS = (
    Room(
        "crds",
        "rltraining_api",
        CLUSTER | LEARNING | PEOPLE | {"rltraining_operator", "rltraining_trainer", "rltraining"},
    ),
    Room("operator", "rltraining_operator", LEARNING | PEOPLE | {"rltraining_trainer", "rltraining"}),
    Room("trainer_image", "rltraining_trainer", CLUSTER | PEOPLE | {"rltraining_operator", "rltraining"}),
    Room("client", "rltraining", frozenset({"kopf"})),
)

TRAINER_NEVER = {
    "transport": {"algorithms", "dataflow", "environments", "networks", "policy", "roles", "world"},
    "dataflow": {"algorithms", "environments", "networks", "policy", "roles", "world"},
    "group": {"algorithms", "dataflow", "environments", "networks", "checkpoint", "policy", "roles", "world"},
    "algorithms": {"transport", "group", "checkpoint", "metrics", "policy", "evaluation", "roles"},
    "world": {"algorithms", "evaluation"},
    "networks": {"transport", "dataflow", "algorithms", "checkpoint", "roles", "world"},
    "environments": {"transport", "dataflow", "algorithms", "networks", "checkpoint", "roles", "world"},
    "checkpoint": {"transport", "dataflow", "algorithms", "environments", "networks", "roles", "world"},
    "metrics": {"transport", "dataflow", "algorithms", "environments", "networks", "roles", "world"},
    "tracking": {
        "transport",
        "dataflow",
        "group",
        "algorithms",
        "environments",
        "networks",
        "roles",
        "world",
    },
    "policy": {"transport", "dataflow", "roles", "world", "evaluation"},
    "evaluation": {"dataflow", "algorithms", "group", "roles", "world"},
}
"""Parts of the trainer that each part must not import.

`world` is the runtime that `algorithms` import, and `roles` start both.
"""

PLANNING_NEVER = {"asyncio", "time", "random", "os", "subprocess", "socket", "kopf", "kubernetes"}
"""Modules that planning must not import. Planning is pure: callers pass in time, randomness and the world."""


BLOCKS = (ast.stmt, ast.ExceptHandler, ast.match_case)
"""Nodes that contain statements, or are statements. Expressions contain none."""


class Import(NamedTuple):
    path: Path
    line: int
    module: str
    """The full name: `rltraining_trainer.transport.errors`."""

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line} imports {self.module}"

    @property
    def top(self) -> str:
        return self.module.partition(".")[0]


def _modules(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)


@cache
def _imports(path: Path) -> tuple[Import, ...]:
    """Returns every import of a module, including imports within functions and for type checkers."""
    found: list[Import] = []
    statements = deque(ast.parse(path.read_text(), path).body)
    while statements:
        node = statements.popleft()
        statements.extend(inner for inner in ast.iter_child_nodes(node) if isinstance(inner, BLOCKS))
        if isinstance(node, ast.Import):
            found += [Import(path, node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            found += [Import(path, node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
    return tuple(found)


def _room_imports(room: Room) -> Iterator[Import]:
    for path in _modules(ROOT / room.folder / room.package):
        yield from _imports(path)


def _project(room: Room) -> dict[str, Any]:
    return tomllib.loads((ROOT / room.folder / "pyproject.toml").read_text())["project"]


def _normal(distribution: str) -> str:
    """Returns the name in PEP 503's normal form, without anything that follows the name."""
    name = re.match(r"[\w.-]+", distribution)
    assert name is not None, distribution
    return re.sub(r"[-_.]+", "-", name[0]).lower()


@cache
def _providers() -> dict[str, set[str]]:
    """Returns the distributions that provide each top-level module."""
    found = {top: set(map(_normal, names)) for top, names in packages_distributions().items()}
    return found | {room.package: {_normal(_project(room)["name"])} for room in ROOMS}


def _is_declared(top: str, declared: set[str]) -> bool:
    names = _providers().get(top, set())
    return bool((names | {COMES_WITH.get(name, name) for name in names}) & declared)


def test_a_room_imports_only_what_it_declares() -> None:
    undeclared = []
    for room in ROOMS:
        project = _project(room)
        extras = chain.from_iterable(project.get("optional-dependencies", {}).values())
        declared = set(map(_normal, [*project["dependencies"], *extras]))
        undeclared += [
            f"{found}: add it to {room.folder}/pyproject.toml with a word on why, or do without"
            for found in _room_imports(room)
            if found.top != room.package
            and found.top not in sys.stdlib_module_names
            and not _is_declared(found.top, declared)
        ]
    assert not undeclared, "\n".join(undeclared)


def test_a_room_keeps_out_what_belongs_to_others() -> None:
    intruders = [
        f"{found}: {room.folder}/ must stay free of {found.top}"
        for room in ROOMS
        for found in _room_imports(room)
        if found.top in room.never
    ]
    assert not intruders, "\n".join(intruders)


def test_a_part_of_the_trainer_does_not_import_the_others() -> None:
    package = "rltraining_trainer"
    intruders = [
        f"{found}: {part}/ must not import {', '.join(sorted(others))}"
        for part, others in TRAINER_NEVER.items()
        for path in _modules(ROOT / "trainer_image" / package / part)
        for found in _imports(path)
        if f"{found.module}.".startswith(tuple(f"{package}.{other}." for other in others))
    ]
    assert not intruders, "\n".join(intruders)


def test_algorithms_use_only_the_public_names_of_the_runtime() -> None:
    """Algorithms must use the same interface as users' algorithms."""
    package = "rltraining_trainer"
    inner = [
        f"{found}: import it from {package}.world, or pass it in"
        for path in _modules(ROOT / "trainer_image" / package / "algorithms")
        for found in _imports(path)
        if found.module.startswith(f"{package}.world.") and found.module.count(".") > 2
    ]
    assert not inner, "\n".join(inner)


def test_planning_is_pure() -> None:
    """Checks `plan.py` and every module of the operator that it imports."""
    folder, seen, ahead = ROOT / "operator", set[Path](), [ROOT / "operator/rltraining_operator/plan.py"]
    intruders = []
    while ahead:
        path = ahead.pop()
        if path in seen:
            continue
        seen.add(path)
        for found in _imports(path):
            if found.top in PLANNING_NEVER:
                intruders.append(f"{found}: plan() is a pure function, hand it in")
            # The imported name may be a module, or a name in a module.
            modules = [found.module, found.module.rpartition(".")[0]]
            ahead += [file for name in modules if (file := folder / f"{name.replace('.', '/')}.py").is_file()]
    assert len(seen) > 1
    assert not intruders, "\n".join(intruders)
