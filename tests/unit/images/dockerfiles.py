"""The two Dockerfiles, read as lists of stages and instructions."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from typing import Any

from tests.cluster.build_context import ROOT

FILES = {"operator": "operator/Dockerfile", "trainer": "trainer_image/Dockerfile"}


@dataclass(frozen=True)
class Instruction:
    word: str
    """`RUN`, `COPY`, …"""
    rest: str
    """Its arguments, continued lines joined."""


@cache
def instructions(room: str) -> tuple[Instruction, ...]:
    text = (ROOT / FILES[room]).read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    return tuple(Instruction(*line.split(maxsplit=1)) for line in joined if line.strip())


@cache
def stage(room: str, name: str) -> tuple[Instruction, ...]:
    """What follows `FROM … AS name`, up to the next stage."""
    found: list[Instruction] = []
    inside = False
    for instruction in instructions(room):
        if instruction.word == "FROM":
            inside = instruction.rest.endswith(f" AS {name}")
        elif inside:
            found.append(instruction)
    assert found, f"{FILES[room]} has no stage {name}"
    return tuple(found)


def default(room: str, argument: str) -> str:
    """Of a build argument."""
    values = [
        instruction.rest.partition("=")[2].strip('"')
        for instruction in instructions(room)
        if instruction.word == "ARG" and instruction.rest.startswith(f"{argument}=")
    ]
    assert len(values) == 1, f"{FILES[room]} gives ARG {argument} {len(values)} defaults, not one"
    return values[0]


@cache
def project(folder: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / folder / "pyproject.toml").read_text())


def folder(room: str) -> str:
    return FILES[room].partition("/")[0]


@cache
def pins() -> dict[str, str]:
    """Versions in constraints.txt by distribution."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return dict(re.split("==", line) for line in lines if line and not line.startswith("#"))
