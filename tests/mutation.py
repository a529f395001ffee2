"""``python -m tests.mutation``: measures how many small faults in the source the unit tests notice.

Changes one random place of a package at a time (a site: a comparison, an operator, a constant, a condition or a call), runs
the package's unit tests against the changed copy, and prints the sites that no test noticed (survivors). The checkout stays as
it is.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TRAINER = "trainer_image/rltraining_trainer"
ENGINES = ("kube", "local")
"""Packages of the operator that are no part of the area `operator`."""
AREAS: dict[str, tuple[str, tuple[str, ...]]] = {
    "crds": ("crds/rltraining_api/**/*.py", ("crds",)),
    "operator": ("operator/rltraining_operator/**/*.py", ("operator",)),
    "kube": ("operator/rltraining_operator/kube/*.py", ("operator",)),
    "client": ("client/rltraining/**/*.py", ("client",)),
    "algorithms": (f"{TRAINER}/algorithms/*.py", ("algorithms", "environments")),
} | {
    name: (f"{TRAINER}/{name}/**/*.py", (name,))
    for name in (
        "checkpoint",
        "dataflow",
        "environments",
        "group",
        "metrics",
        "networks",
        "policy",
        "roles",
        "transport",
        "world",
    )
}
"""Name: (source files, folders of tests/unit that should notice a fault in them). operator/local is the integration tests'."""
SHARED_IMPORTS = (
    "torch",
    "numpy",
    "gymnasium",
    "pydantic",
    "kopf",
    "kubernetes",
    "aiohttp",
    "typer",
)
"""Modules imported once, before the first fork. Otherwise each run would take seconds longer."""
OUTPUT = "output.txt"
"""The file with pytest's output, in the folder of the run."""
CPU_LIMIT_SECONDS = 300
"""A run that uses more CPU time counts as hung, and its fault as noticed.

pytest-timeout ends runs that only wait.
"""

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
}


@dataclass(frozen=True)
class Site:
    """A place in the source and what replaces it."""

    path: Path
    line: int
    start: int
    """Offset of the first byte in the file."""
    end: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.before}  ->  {self.after}"


def replacements(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """Yields nodes that each differ from `node` in one operator, constant or condition."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in COMPARISONS:
            yield ast.Compare(node.left, [COMPARISONS[type(operator)]()], node.comparators)
        case ast.BinOp(op=operator) if type(operator) in ARITHMETIC:
            yield ast.BinOp(node.left, ARITHMETIC[type(operator)](), node.right)
        case ast.BoolOp(op=operator):
            yield ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            yield ast.Constant(value + 1)
        case ast.IfExp():
            yield ast.IfExp(node.test, node.orelse, node.body)
        case ast.Expr(value=ast.Call() | ast.Await(value=ast.Call())):
            yield ast.Pass()


def executed(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the executed nodes below `node`: no annotations, and no formatted strings, which have wrong positions."""
    for name, field in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in field if isinstance(field, list) else [field]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                yield child
                yield from executed(child)


def sites(path: Path) -> Iterator[Site]:
    """Yields every site of a source file."""
    text = path.read_bytes()
    offsets = [0]
    for line in text.splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    for node in executed(ast.parse(text)):
        for changed in replacements(node):
            start = offsets[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
            end = offsets[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
            after = ast.unparse(ast.fix_missing_locations(copy.deepcopy(changed)))
            before = text[start:end].decode()
            yield Site(path, node.lineno, start, end, before, after)  # type: ignore[attr-defined]


def mutated(site: Site) -> bytes:
    """Returns the file with the site replaced, in parentheses if it is an expression: its surroundings keep their meaning."""
    text = site.path.read_bytes()
    after = site.after if site.after == "pass" else f"({site.after})"
    return text[: site.start] + after.encode() + text[site.end :]


def choose(area: str, count: int, seed: int) -> list[Site]:
    """Returns `count` random sites of an area; the same for the same seed and source."""
    paths = (
        path
        for path in sorted(ROOT.glob(AREAS[area][0]))
        if path.parent.name not in ENGINES or area == "kube"
    )
    found = [site for path in paths for site in sites(path)]
    return random.Random(seed).sample(found, min(count, len(found)))


class Run:
    """One run of an area's unit tests in a fork of this process, against a copy of the package with one site replaced."""

    def __init__(self, area: str, tests: Path, site: Site | None) -> None:
        self.site = site
        self._folder = tempfile.TemporaryDirectory()
        # A copy of the package, with the fault.
        package = ROOT.joinpath(*Path(AREAS[area][0]).parts[:2])
        copied = Path(self._folder.name) / package.name
        shutil.copytree(package, copied, ignore=shutil.ignore_patterns("__pycache__"))
        if site is not None:
            (copied / site.path.relative_to(package)).write_bytes(mutated(site))
        # Run test files with the module's name first: they most likely notice the fault.
        folders = [tests / "unit" / name for name in AREAS[area][1]]
        stem = site.path.stem if site else " "
        likely = [path for folder in folders for path in sorted(folder.rglob(f"test_*{stem}*.py"))]
        self._pid = os.fork()
        if self._pid == 0:
            _run_pytest(self._folder.name, [*map(str, [*likely, *folders])])

    def passed(self) -> bool | None:
        """Returns whether all tests passed; None while they run."""
        done, status = os.waitpid(self._pid, os.WNOHANG)
        if not done:
            return None
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        passed = os.waitstatus_to_exitcode(status) == 0
        if self.site is None and not passed:
            print((Path(self._folder.name) / OUTPUT).read_text())
        self._folder.cleanup()
        return passed


def _run_pytest(package_folder: str, arguments: list[str]) -> None:
    """Runs pytest in a forked process, which ends with pytest's exit code."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_SECONDS, CPU_LIMIT_SECONDS))
    output = os.open(Path(package_folder) / OUTPUT, os.O_RDWR | os.O_CREAT)
    for descriptor in (0, 1, 2):
        os.dup2(output, descriptor)
    os.chdir(ROOT)
    sys.path.insert(0, package_folder)
    os.environ |= {"PYTHONPATH": package_folder, "CI": "true", "PYTHONDONTWRITEBYTECODE": "1"}
    code = 1
    try:
        code = int(
            pytest.main(
                [
                    *arguments,
                    "-xqq",
                    "-pno:cacheprovider",
                    "--randomly-dont-reorganize",
                    f"-c{ROOT / 'pyproject.toml'}",
                ]
            )
        )
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def survivors(area: str, tests: Path, chosen: Sequence[Site | None], jobs: int) -> list[Site | None]:
    """Returns the sites with a fault that no test detects; runs at most `jobs` processes at a time."""
    waiting, running, survived = list(chosen), list[Run](), list[Site | None]()
    while waiting or running:
        while waiting and len(running) < jobs:
            running.append(Run(area, tests, waiting.pop(0)))
        for run in list(running):
            if (passed := run.passed()) is None:
                continue
            running.remove(run)
            if passed:
                survived.append(run.site)
        time.sleep(0.05)
    return survived


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("area", nargs="*", choices=[[], *AREAS], help="which packages (default: all)")
    parser.add_argument("--sites", type=int, default=45, help="random sites in each area (default 45)")
    parser.add_argument("--seed", type=int, default=1, help="of the random choice (default 1)")
    parser.add_argument(
        "--tests", type=Path, default=ROOT / "tests", help="another checkout's tests, to compare"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at the same time")
    arguments = parser.parse_args()
    for name in SHARED_IMPORTS:
        importlib.import_module(name)
    tests = arguments.tests.resolve()
    for area in arguments.area or AREAS:
        began = time.monotonic()
        if not survivors(area, tests, [None], 1):
            sys.exit(f"{area}: its unit tests fail without a fault; make them pass first")
        chosen = choose(area, arguments.sites, arguments.seed)
        left = survivors(area, tests, chosen, arguments.jobs)
        seconds, noticed = time.monotonic() - began, len(chosen) - len(left)
        print(
            f"{area}: {noticed} of {len(chosen)} noticed (seed {arguments.seed}, {seconds:.0f} s)", flush=True
        )
        for line in sorted(map(str, left)):
            print(f"  survived: {line}".replace(f"{ROOT}/", ""), flush=True)


if __name__ == "__main__":
    main()
