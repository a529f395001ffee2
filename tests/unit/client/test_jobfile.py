from __future__ import annotations

import io
from pathlib import Path

import pytest
from rltraining.errors import UsageError
from rltraining.jobfile import load

CODE = """
---
apiVersion: v1
kind: ConfigMap
metadata: {name: my-code}
data: {maze.py: "x = 1\\n"}
---
apiVersion: v1
kind: Service
metadata: {name: other}
"""


@pytest.fixture
def file(tmp_path: Path, manifest: str) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(manifest + "  code: {configMap: {name: my-code}}\n" + CODE)
    return path


def test_a_job_comes_with_the_code_in_its_file_and_the_folder_of_its_file(file: Path) -> None:
    loaded = load(str(file), ["seed=7"])
    assert loaded.job.spec.seed == 7
    assert [document["data"] for document in loaded.config_maps] == [{"maze.py": "x = 1\n"}]
    assert loaded.code_folder == file.parent


def test_what_is_saved_loads_again_as_it_was_wherever_it_lies(file: Path, tmp_path: Path) -> None:
    first = load(str(file))
    copy = tmp_path / "elsewhere" / "job.yaml"
    copy.parent.mkdir()
    first.save(copy)
    assert load(str(copy)) == first
    assert "status" not in copy.read_text()


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("{name: my-code}", "{}", r"a ConfigMap in the manifest's file has no metadata\.name"),
        ("maze.py:", "../maze.py:", r"ConfigMap my-code: data\.\.\./maze\.py: a key must be a file's name"),
        ("maze.py:", "..:", "a key must be a file's name"),
        ('"x = 1\\n"', "1", "ConfigMap my-code: data must be an object of texts"),
    ],
)
def test_a_config_map_that_no_cluster_takes_is_refused(file: Path, old: str, new: str, sentence: str) -> None:
    head, code = file.read_text().split("---", 1)
    assert old in code
    file.write_text(f"{head}---{code.replace(old, new)}")
    with pytest.raises(UsageError, match=sentence):
        load(str(file))


def test_what_an_api_server_added_is_left_behind(manifest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`kubectl get rlj/cartpole -o yaml | rltrain run -`"""
    served = manifest.replace(
        "{name: cartpole}",
        "{name: cartpole, labels: {a: b}, uid: x-y, generation: 3, resourceVersion: '7', managedFields: [],"
        " creationTimestamp: '2026-11-21T01:00:00Z', deletionTimestamp: '2026-11-21T02:00:00Z'}",
    )
    monkeypatch.setattr("sys.stdin", io.StringIO(served + "status: {phase: Failed}\n"))
    loaded = load("-")
    assert loaded.code_folder is None
    job = loaded.job
    assert job.metadata.to_dict() == {"name": "cartpole", "labels": {"a": "b"}}
    assert job.status.phase == "Pending"
