"""Dockerfiles have an unprivileged user and the versions of this tree. Tests on a cluster build and run the images."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.docs_pages import ROOT
from tests.lint.problem import Problem, line_of

FILES = {"operator": "operator/Dockerfile", "trainer_image": "trainer_image/Dockerfile"}


def wrong_images(texts: Mapping[str, str] | None = None) -> Iterator[Problem]:
    """Finds Dockerfiles with another user or other versions, and dependencies that constraints.txt does not pin."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    texts = texts or {room: (ROOT / path).read_text() for room, path in FILES.items()}
    for room, text in texts.items():
        path = f"{room}/pyproject.toml"
        declared = (ROOT / path).read_text()
        project = tomllib.loads(declared)
        wanted = {
            r"^USER .*": "USER 65532:65532",  # a number, because runAsNonRoot cannot check a name
            r"^ARG VERSION=.*": f"ARG VERSION={project['project']['version']}",
        }
        for pattern, right in wanted.items():
            found = re.findall(pattern, text, re.MULTILINE) or [""]
            if set(found) != {right}:
                yield Problem(FILES[room], line_of(text, found[0]), f"this should be {right}: correct it")
        for line in project["project"]["dependencies"]:
            need = Requirement(line)
            pin = pins.get(canonicalize_name(need.name))
            if not need.name.startswith("rltraining") and (pin is None or pin not in need.specifier):
                text = f"constraints.txt does not pin {line}: make constraints"
                yield Problem(path, line_of(declared, line), text)


CHECKS = (wrong_images,)
