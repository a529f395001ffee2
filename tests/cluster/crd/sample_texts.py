"""For each pattern of the contract: texts that it admits and texts that it refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rltraining_api import patterns


@dataclass(frozen=True)
class Texts:
    """Examples of one pattern."""

    of_length: Callable[[int], str]
    """An admitted text of so many characters, at least 3."""
    good: tuple[str, ...] = ()
    bad: tuple[str, ...] = ()


def _beginning(start: str) -> Callable[[int], str]:
    return lambda length: start + "a" * (length - len(start))


TEXTS: dict[str | None, Texts] = {
    None: Texts(_beginning(""), good=("ä" * 50,)),
    patterns.OBJECT_NAME: Texts(
        _beginning(""),
        good=("a", "a.b-c", "0"),
        bad=("", "A", "-a", "a-", ".a", "a.", "a_b", "a b", "ä", "a\n", "\na"),
    ),
    patterns.URI: Texts(
        lambda length: f"s3://{'a' * (length - 5)}" if length > 5 else "a" * (length - 2) + "://a",
        good=("s3://b/p", "file:///a", "gs://b/ä", "git+ssh://x"),
        bad=(
            "",
            "/a/b",
            "s3:/b",
            "s3://",
            "S3://b",
            "s3://a b",
            "s3://a\tb",
            "s3://a\n",
            "s3://a\x0bb",
            "3s://b",
        ),
    ),
    patterns.MODULE: Texts(
        _beginning(""),
        good=("a", "a.b_1.C", "_a._b"),
        bad=("", ".a", "a.", "a..b", "1a", "a.1b", "a-b", "a:b", "a b", "ä", "a\n", "\na"),
    ),
    patterns.ENTRY_POINT: Texts(
        _beginning("a:"),
        good=("a:b", "a.b_1:C.d", "_a:_b"),
        bad=("", "a", ":b", "a:", "a.:b", ".a:b", "1a:b", "a:1b", "a:b:c", "a:b-c", "ä:b", "a:b\n"),
    ),
    patterns.ENVIRONMENT_ID: Texts(
        _beginning(""),
        good=("CartPole-v1", "ALE/Pong-v5", "my_envs.grid:Grid-v0", "m:ns/Grid.v0"),
        bad=("", "a b", "a:", ":a", "a/b/c", "a:b:c", "-a", "/a", "ä-v0", "a-v0\n", "a/"),
    ),
    patterns.IMAGE: Texts(
        _beginning(""),
        good=("a", "ghcr.io/o/i:1.0", "h:5000/i@sha256:0123"),
        bad=("", " ", "a b", "a\tb", "a\n", "a\x0bb", "a\u00a0b", "a\u3000b"),
    ),
    patterns.MANAGED_BY: Texts(
        _beginning("a/"),
        good=("rltraining.dev/operator", "kueue.x-k8s.io/multikueue", "a/b/c:(d)"),
        bad=("", "a", "/a", "a/", "A.b/c", "a b/c", "a/b c", "a/b?", "-a/b", "a/b\n"),
    ),
}
"""By pattern; a text without one takes any characters."""
