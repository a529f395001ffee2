"""The files of requirements/ have the versions of constraints.txt, a hash for each package, and every declared dependency."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.docs_pages import ROOT
from tests.lint.problem import Problem, line_of

PROJECTS = {
    "requirements/build.txt": (),
    "requirements/compiler.txt": (),
    "requirements/operator.txt": ("crds", "operator"),
    "requirements/trainer.txt": ("crds", "trainer_image"),
}
"""Each file contains the dependencies of these distributions."""
PROGRAMS = {
    "requirements/build.txt": ("uv",),
    "requirements/compiler.txt": ("ziglang",),
    "requirements/trainer.txt": ("pip",),
}
"""The packages of each file that no distribution declares."""
PACKAGE = re.compile(r"([a-z0-9-]+)==([^\s\\]+) \\\n((?: {4}--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)")
REMEDY = "run make hashes"


def wrong_hashes(texts: Mapping[str, str] | None = None) -> Iterator[Problem]:
    """Finds requirements with another version than in constraints.txt or without a hash, and missing dependencies."""
    constraints = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in constraints if line and not line.startswith("#"))
    texts = texts or {path: (ROOT / path).read_text() for path in PROJECTS}
    for path, text in texts.items():
        # Anything else, such as an option, a URL or a package without a hash, is left.
        left = re.sub(r"^#.*\n", "", PACKAGE.sub("", text), flags=re.MULTILINE).strip()
        if left:
            first = left.splitlines()[0]
            yield Problem(path, line_of(text, first), f"not a version with hashes: {first}: {REMEDY}")
        found = {name: version for name, version, _ in PACKAGE.findall(text)}
        for name, version in found.items():
            if pins.get(name) != version:
                line = line_of(text, f"{name}=={version}")
                yield Problem(path, line, f"constraints.txt has {name}=={pins.get(name)}: {REMEDY}")
        for need in map(Requirement, _needed(path)):
            version = found.get(canonicalize_name(need.name))
            if version is None or version not in need.specifier:
                yield Problem(path, 1, f"no version that satisfies {need}: {REMEDY}")


def _needed(path: str) -> Iterator[str]:
    """Yields the requirements of the file's distributions, with all extras, and of the builds."""
    yield from PROGRAMS.get(path, ())
    for room in PROJECTS[path]:
        project = tomllib.loads((ROOT / room / "pyproject.toml").read_text())["project"]
        for group in (project["dependencies"], *project.get("optional-dependencies", {}).values()):
            yield from (each for each in group if not each.startswith("rltraining"))
    if path == "requirements/build.txt":
        for room in ("crds", "operator", "trainer_image"):
            yield from tomllib.loads((ROOT / room / "pyproject.toml").read_text())["build-system"]["requires"]


CHECKS = (wrong_hashes,)
