"""The files that reach a builder, and the changes that make another image."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.local_kubernetes.build_context import admitted, fingerprint, snapshot

DOCKERFILE = "room/Dockerfile"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    for name, text in {
        ".dockerignore": "# comment\n*\n!pins.txt\n!room/code\n!other/code\n**/__pycache__\n**/*.pyc\n",
        "room/Dockerfile": "FROM x\nCOPY pins.txt ./\nCOPY --from=y /z /z\nCOPY room room\n",
        "pins.txt": "a==1",
        "room/code/a.py": "a",
        "room/code/deep/b.py": "b",
        "room/code/__pycache__/a.pyc": "bytecode",
        "room/code/stray.pyc": "bytecode",
        "room/notes.md": "not admitted",
        "other/code/c.py": "admitted, not copied",
        "secret.pem": "never",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_only_what_is_admitted_by_name_is_seen(tree: Path) -> None:
    assert admitted(tree) == ["other/code/c.py", "pins.txt", "room/code/a.py", "room/code/deep/b.py"]


@pytest.mark.parametrize(
    ("change", "another"),
    [
        (lambda root: (root / "room/code/deep/b.py").write_text("b2"), True),
        (lambda root: (root / "room/code/new.py").write_text(""), True),
        (lambda root: (root / "room/code/a.py").rename(root / "room/code/z.py"), True),
        (lambda root: (root / "pins.txt").write_text("a==2"), True),
        (lambda root: (root / DOCKERFILE).write_text("FROM z\nCOPY pins.txt room ./\n"), True),
        (lambda root: (root / "other/code/c.py").write_text("c2"), False),
        (lambda root: (root / "room/notes.md").write_text("more"), False),
        (lambda root: (root / "room/code/__pycache__/b.pyc").write_text("more"), False),
        (lambda root: (root / "room/code/a.py").touch(), False),
    ],
    ids=["edited", "new", "renamed", "pins", "dockerfile", "other-room", "ignored", "bytecode", "touched"],
)
def test_another_content_is_another_image(
    tree: Path, change: Callable[[Path], object], another: bool
) -> None:
    before = fingerprint(DOCKERFILE, tree)
    change(tree)
    assert (fingerprint(DOCKERFILE, tree) != before) is another


def test_a_snapshot_is_the_same_image_and_does_not_change_any_more(tree: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    (copy / "room/code").mkdir(parents=True)
    (copy / "room/code/left.py").write_text("of an earlier build")
    tag = snapshot(DOCKERFILE, copy, tree)
    assert tag == fingerprint(DOCKERFILE, tree)
    (tree / "room/code/a.py").write_text("edited meanwhile")
    assert fingerprint(DOCKERFILE, copy) == tag
