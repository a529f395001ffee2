"""`kubectl rltrain`, and shell completion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_api import FakeApi
from rltraining.cluster import plugin


@pytest.fixture(autouse=True)
def environment(kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes the environment variables that completion sets."""
    for name in ("COMP_WORDS", "COMP_CWORD", "_RLTRAIN_COMPLETE"):
        monkeypatch.setenv(name, "")


def test_help_calls_it_by_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["kubectl-rltrain", "get", "--help"])
    with pytest.raises(SystemExit):
        plugin.main()
    assert "Usage: kubectl rltrain get" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["su"], ["submit", "suspend", ":4"]),
        (["watch", ""], ["cartpole", "other", ":4"]),
        (["watch", "car"], ["cartpole", ":4"]),
        (["delete", "-n", "team", ""], ["theirs", ":4"]),
        (["-n", "team", "delete", ""], ["theirs", ":4"]),
        (["delete", "--context", "nope", ""], [":0"]),
        (["get", "-o", "w"], ["wide", ":4"]),
        (["submit", "exa"], [":0"]),
    ],
)
def test_what_tab_offers(
    words: list[str],
    offered: list[str],
    api: FakeApi,
    job: Any,
    manifest: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, namespace in (("other", "default"), ("theirs", "team")):
        metadata = {"name": name, "namespace": namespace}
        api.put("rltrainingjobs", {**yaml.safe_load(manifest), "metadata": metadata})
    plugin.complete(words)
    assert capsys.readouterr().out.split() == offered
