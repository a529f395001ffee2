"""Manifests that are bombs get an error message immediately, however large their expansion would be."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rltraining_api import yaml_text
from rltraining_api.bounds import BYTES_MAX, DEPTH_MAX
from rltraining_api.manifest import ManifestError, apply_overrides, load_manifest, load_manifests, parse_job

JOB = """\
apiVersion: rltraining.dev/v1alpha1
kind: RLTrainingJob
metadata: {name: bomb}
spec:
  algorithm: {impala: {}}
  environment:
    id: CartPole-v1
    kwargs: KWARGS
  stop: {environmentSteps: 1000}
"""
SECONDS = 2.0
"""CPU seconds, a hundred times the usual need."""


def job(kwargs: str) -> str:
    return JOB.replace("KWARGS", kwargs)


def laughs(levels: int, item: str = "*a{}") -> str:
    """Returns nested lists of nine aliases each: 9 ** levels values in 50 bytes per level."""
    lines = ["", "      a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    for level in range(1, levels):
        lines.append(f"      a{level}: &a{level} [{', '.join([item.format(level - 1)] * 9)}]")
    return "\n".join(lines)


def merged(levels: int) -> str:
    """Returns the same with merge keys, which copy."""
    lines = ["", "      a0: &a0 {x: 1}"]
    for level in range(1, levels):
        lines.append(f"      a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 9)}]}}")
    return "\n".join(lines)


def deep(levels: int) -> str:
    """Returns lists nested through aliases, of which no line is deep."""
    lines = ["", "      a0: &a0 [x]"]
    lines += [f"      a{level}: &a{level} [*a{level - 1}]" for level in range(1, levels)]
    return "\n".join(lines)


def refusal_of(load: Callable[[], Any]) -> str:
    with pytest.raises((ManifestError, yaml_text.YamlError)) as caught:
        load()
    return str(caught.value)


@contextmanager
def moment() -> Iterator[None]:
    before = time.process_time()
    yield
    assert time.process_time() - before < SECONDS


ALIASES = "aliases stand for more than 10,000 values: write the values out"
NESTED = f"lists and objects are nested more than {DEPTH_MAX} levels deep"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (job(laughs(9)), f"line 13, column 16: {ALIASES}"),
        (job(merged(9)), ALIASES),
        (
            f"kind: ConfigMap\napiVersion: v1\nmetadata: {{name: x}}\nbomb:{laughs(9)}\n---\n{job('{}')}",
            ALIASES,
        ),
        (
            f"a: &a [{'1,' * 90}1]\nb: [{'*a,' * 90}*a]\n---\n" * 20,
            "the file holds more than 100,000 values: split it",
        ),
        (job(deep(100)), f"line 69, column 18: {NESTED}"),
        (job("[" * 100 + "]" * 100), f"line 8, column 74: {NESTED}"),
        (job("{a: " * 20_000), f"line 8, column 257: {NESTED}"),
        (job("\n     " + "- " * 20_000), NESTED),
        (job(f"{{n: 1{':59' * 20_000}}}"), "line 8, column 17: is not a readable number: 1:59:59"),
        (job(f"{{n: 0x{'f' * 20_000}}}"), "line 8, column 17: is not a readable number: 0xffff"),
        (job("{n: !!bool maybe}"), "line 8, column 17: is no bool: 'maybe'"),
        (job("{n: !!float high}"), "line 8, column 17: is no float: 'high'"),
        (job("{n: !!int ''}"), "line 8, column 17: is no int: ''"),
        (job("{n: !!timestamp now}"), "line 8, column 17: is no timestamp: 'now'"),
        ("#" * (BYTES_MAX + 1), "is larger than 1 MiB"),
    ],
    ids=lambda value: value[:0] or None,
)
def test_a_bomb_is_one_sentence(text: str, sentence: str) -> None:
    for load in (load_manifest, load_manifests):
        with moment():
            told = refusal_of(lambda load=load: load(text))
        assert sentence in told
        assert len(told) < 200
        assert "\n" not in told


@pytest.mark.parametrize("text", ['a: "\\U00110000"', 'a: "\\UFFFFFFFF"', f"%YAML 1.{'1' * 5000}\n---\na: 1"])
def test_what_the_scanner_cannot_convert_is_one_sentence(text: str) -> None:
    sentence = refusal_of(lambda: yaml_text.documents(text))

    assert sentence == "holds an escape that is no character, or a number that cannot be read"


def test_aliases_and_nesting_within_reason_are_read() -> None:
    text = job("\n      reward: &r {goal: [1, 2]}\n      other: *r\n      third: {<<: *r, more: 1}")
    kwargs = load_manifest(text).spec.environment.kwargs
    assert kwargs["other"] == {"goal": [1, 2]}
    assert kwargs["third"] == {"goal": [1, 2], "more": 1}
    levels = DEPTH_MAX - 3  # the outer levels: the job, spec, environment
    assert load_manifest(job(f"{{n: {'[' * (levels - 1)}{']' * (levels - 1)}}}"))
    assert NESTED in refusal_of(lambda: load_manifest(job(f"{{n: {'[' * levels}{']' * levels}}}")))


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"key": value}
    return value


def test_data_that_no_text_was_read_for_has_the_same_bounds() -> None:
    """The Python client accepts such data. YAML that another library has read shares its aliases."""
    spec = {"algorithm": {"impala": {}}, "stop": {"environmentSteps": 1}}
    header = {"apiVersion": "rltraining.dev/v1alpha1", "kind": "RLTrainingJob", "metadata": {"name": "a"}}
    level: Any = ["x"]
    for _ in range(9):
        level = [level] * 9
    itself: Any = {"id": "A-v0", "kwargs": {}}
    itself["kwargs"]["again"] = [itself]
    for environment, sentence in (
        ({"id": "A-v0", "kwargs": {"n": nested(5000)}}, "spec.environment.kwargs.n.key.key.key"),
        ({"id": "A-v0", "kwargs": {"n": level}}, "manifest: holds more than 100,000 values"),
        (itself, "spec.environment.kwargs.again[0]: must not hold itself"),
    ):
        with moment():
            told = refusal_of(lambda e=environment: parse_job({**header, "spec": {**spec, "environment": e}}))
        assert sentence in told.splitlines()[0]
        assert len(told.splitlines()[0]) < 200


def test_values_on_the_command_line_have_the_same_bounds() -> None:
    data = {"spec": {}}
    for value, sentence in (
        ("[" * 100 + "]" * 100, f"column 65: {NESTED}"),
        (f"[&a [{'x, ' * 999}x], {'*a, ' * 20}]", ALIASES),
    ):
        assert sentence in refusal_of(lambda v=value: apply_overrides(data, [f"environment.kwargs.n={v}"]))
        assert sentence in refusal_of(lambda v=value: yaml_text.value(v))


def test_a_file_is_read_no_further_than_it_may_be_long(tmp_path: Path) -> None:
    for file in (Path("/dev/zero"), tmp_path / "large.yaml"):
        if file.parent == tmp_path:
            file.write_text("#" * BYTES_MAX + "\n" + job("{}"))
        assert refusal_of(lambda file=file: load_manifest(file)).startswith(f"{file}: is larger than 1 MiB")


def test_of_many_problems_the_first_are_told_and_the_rest_are_counted() -> None:
    unknown = job("{}") + "".join(f"  unknown{number}: 1\n" for number in range(2000))
    with moment():
        lines = refusal_of(lambda: load_manifest(unknown)).splitlines()
    assert len(lines) == 21
    assert lines[0].startswith("manifest: spec.unknown0: is not a known field")
    assert lines[-1] == "manifest: and 1980 more problems"
    assert sum(map(len, lines)) < 12_000
    some = "".join(unknown.splitlines(keepends=True)[:40])
    many = refusal_of(lambda: load_manifests("---\n".join([some] * 5))).splitlines()
    assert len(many) == 41
    assert many[-1] == "and 65 more lines"
    infinite = job(f"[{'.inf, ' * 200}]")
    assert len(refusal_of(lambda: load_manifest(infinite)).splitlines()) == 41


def test_a_long_key_is_cut_short() -> None:
    told = refusal_of(lambda: load_manifest(job("{}") + f"  {'k' * 900}: 1\n"))
    assert len(told) <= 500
    assert told.endswith("...")
