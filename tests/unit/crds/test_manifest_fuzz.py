"""Mutated manifests: each gives a job or errors, quickly and with little memory, and none runs code."""

from __future__ import annotations

import random
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rltraining_api.manifest import ManifestError, apply_overrides, load_manifests

from tests.soak import SOAK

CASES = 5_000 * SOAK if SOAK > 1 else 200
"""`make soak` tries 100,000."""
SECONDS_MAX = 2.0
"""CPU seconds for one manifest."""
GROWTH_MAX = 1.1
"""Growth of memory, from the time when a tenth has been read."""
TEXT_MAX = 560
"""Characters of an error message, with the file's name and the number of the job."""
EXAMPLES = [
    path.read_text() for path in sorted((Path(__file__).parents[3] / "examples").glob("*-impala.yaml"))
]
TOKENS = [
    *(
        "&a",
        "*a",
        "&b {<<: *a}",
        "<<: *a",
        "[*a, *a, *a, *a]",
        "{",
        "}",
        "[",
        "]",
        "- ",
        "? ",
        ": ",
        "---",
        "...",
    ),
    *(
        "|",
        ">",
        "'",
        '"',
        "\\",
        "%TAG ! tag:x,2000:",
        "!!set {a, b}",
        "!!omap [a: 1]",
        "!!binary aGk=",
        "!x y",
    ),
    *("!!bool maybe", "!!int x", "!!float x", "!!null x", "!!timestamp x", "!!merge x", "!!value x", "="),
    *(
        "0x",
        "0b2",
        "1:59:59",
        "1e999",
        "-.inf",
        ".nan",
        "9" * 400,
        "0o8",
        "1_000",
        "2026-01-01",
        "~",
        "null",
        "yes",
    ),
    *(
        "\x00",
        "\x1b[31m",
        "\x9b",
        "\u2028",
        "\ufeff",
        "\ud800",
        "\U0001f600",
        "\t",
        "\r",
        "k" * 2000,
        "[" * 70,
    ),
    *('!!python/object/apply:os.system ["touch {pwned}"]', '!!python/object/new:os.system ["touch {pwned}"]'),
    *("!!python/name:os.system", "!!python/module:antigravity", "!!python/tuple [1]"),
    *("apiVersion: v1", "kind: ConfigMap", "status: {}", "entryPoint: os:system", "id: antigravity:X-v0"),
]


def changed(rng: random.Random, part: str, other: str) -> str:
    token, gap = rng.choice(TOKENS), rng.choice(("", " ", "\n", "\n  ", ": "))
    return rng.choice(
        (
            token + gap + part,
            part + token,
            f" {token}\n",
            "",
            part * rng.choice((2, 3, 50)),
            other,
            part[::-1],
        )
    )


def mutated(rng: random.Random) -> str:
    """Returns a changed example: tokens inserted, parts deleted, doubled, moved or copied from another."""
    text = rng.choice(EXAMPLES)
    for _ in range(rng.randint(1, 8)):
        here, there = sorted(rng.randrange(len(text) + 1) for _ in range(2))
        there = min(there, here + rng.choice((1, 5, 40, 400)))
        part = text[here:there]
        new = changed(rng, part, rng.choice(EXAMPLES)[here:there])
        text = text[:here] + new + text[there:]
    return text


def override(rng: random.Random) -> str:
    path = rng.choice(("seed", "environment.kwargs.a.b", "stop", "a[0].b", "spec", "metadata.name", "..", ""))
    return f"{path}={rng.choice(TOKENS)}{rng.choice(TOKENS)}"


def outcome(read: Callable[[], object]) -> str:
    """Returns `job`, `sentences`, or a description of any other result."""
    try:
        read()
    except ManifestError as error:
        for line in error.problems:
            assert len(line) <= TEXT_MAX
            assert "\n" not in line.rstrip("\n")
        return "sentences"
    return "job"


@pytest.mark.timeout(7200)
def test_mutated_manifests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seed = random.randrange(2**32)
    rng, pwned = random.Random(seed), tmp_path / "pwned"
    counts, slowest, memory = {"job": 0, "sentences": 0}, 0.0, 0
    modules = set(sys.modules)
    for case in range(CASES):
        text = mutated(rng).replace("{pwned}", str(pwned))
        change = override(rng)
        began = time.process_time()
        try:
            counts[outcome(lambda text=text: load_manifests(text))] += 1
            outcome(lambda change=change: apply_overrides({"spec": {"a": [{}]}}, [change]))
        except BaseException as error:
            raise AssertionError(f"case {case} of seed {seed}:\n{change!a}\n{text!a}") from error
        slowest = max(slowest, time.process_time() - began)
        if case == CASES // 10:
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / memory
    run = int(pwned.exists()) + len({"antigravity"} & (set(sys.modules) - modules))
    with capsys.disabled():
        if SOAK > 1:
            print(
                f"\n{CASES} manifests: {counts}, code run {run}, slowest {slowest:.2f} s, memory x {growth:.2f}"
            )
    assert run == 0
    assert slowest < SECONDS_MAX
    assert growth < GROWTH_MAX
    assert min(counts.values()) > 0
