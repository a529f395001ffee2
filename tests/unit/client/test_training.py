"""`rltraining.train` without processes: its manifest and its output."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rltraining import engine_thread, train, training
from rltraining.errors import UsageError
from rltraining.jobfile import JobFile
from rltraining.snapshot import Snapshot
from rltraining_api.contract import ENV_JOB_FILE, ENV_MANIFEST_DIR
from rltraining_api.evaluation import EvaluationResult, EvaluationStatus
from rltraining_api.status import Status
from snapshots import snapshot


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(ENV_MANIFEST_DIR, "")  # `train` sets it


Show = Callable[[Snapshot], None]


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[JobFile]:
    """The jobs that were trained. Training returns immediately."""
    files: list[JobFile] = []

    async def over(runtime: Any, request: Any, file: JobFile, folder: Path, show: Show) -> Snapshot:
        files.append(file)
        return Snapshot(file.job, 0.0)

    monkeypatch.setattr(engine_thread, "train_on", over)
    return files


def test_numbers_of_numpy_and_whole_floats_are_accepted(trained: list[JobFile]) -> None:
    train(
        {"id": "CartPole-v1", "numEnvs": np.int64(4)},
        algorithm={"ppo": {"learningRate": np.float32(0.5)}},
        environment_steps=1e6,
        seed=np.int64(7),  # type: ignore[arg-type]
        progress=False,
    )

    spec = trained[0].job.spec
    assert spec.stop.environment_steps == 1_000_000
    assert (spec.environment.num_envs, spec.seed) == (4, 7)
    assert spec.algorithm.ppo is not None
    assert spec.algorithm.ppo.learning_rate == 0.5


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"environment": object()}, "environment: must be an id or a dictionary, got Python's object"),
        ({"algorithm": None}, "algorithm: must be a name or a dictionary, got Python's NoneType"),
        ({"spec": {"stop": None}}, "spec.stop: must be a dictionary, got Python's NoneType"),
        (
            {"spec": {"sampler": {"replicas": 8}}},
            "spec has sampler.replicas, which is an argument of train(): set samplers instead",
        ),
        (
            {"spec": {"stop": {"environmentSteps": 5}}},
            "spec has stop.environmentSteps, which is an argument of train(): set environment_steps instead",
        ),
        (
            {"environment": "no_such:Maze-v0"},
            "no_such is neither installed here nor beside the script or notebook: put",
        ),
        ({"workdir": "none", "resume": True}, "workdir none: holds no run to resume: leave out resume=True"),
        ({"workdir": "run"}, "continue it with resume=True, replace it with overwrite=True"),
        (
            {"workdir": "run", "resume": True, "algorithm": "impala"},
            "was started with ppo, and impala cannot use its checkpoints: choose another workdir",
        ),
    ],
)
def test_a_message_names_the_argument(
    trained: list[JobFile], arguments: dict[str, Any], sentence: str
) -> None:
    file = training._job_file("CartPole-v1", "ppo", 10, 2, 0, {})
    Path("run").mkdir()
    file.save(Path("run/job.yaml"))
    Path("run/status.json").write_text(file.job.model_dump_json(by_alias=True))

    with pytest.raises(UsageError) as caught:
        train(**{"environment": "CartPole-v1", "environment_steps": 10} | arguments)

    assert sentence in str(caught.value)
    assert not trained


@pytest.mark.parametrize(
    ("stop", "arguments", "remedy"),
    [
        ({"environmentSteps": 10}, {"environment_steps": 10}, "set another environment_steps"),
        (
            {"meanReturn": {"atLeast": 5}},
            {"spec": {"stop": {"meanReturn": {"atLeast": 5}}}},
            "set another spec.stop.meanReturn",
        ),
    ],
)
def test_a_run_that_has_succeeded_continues_only_with_another_rule(
    trained: list[JobFile], stop: dict[str, Any], arguments: dict[str, Any], remedy: str
) -> None:
    file = training._job_file("CartPole-v1", "ppo", None, 2, 0, {"stop": stop})
    Path("run").mkdir()
    file.save(Path("run/job.yaml"))
    status = Status(phase="Succeeded", message=f"stop.{next(iter(stop))} is met: 12 of 10")
    job = file.job.model_copy(update={"status": status})
    Path("run/status.json").write_text(job.model_dump_json(by_alias=True))

    with pytest.raises(UsageError) as caught:
        train("CartPole-v1", workdir="run", resume=True, progress=False, **arguments)
    assert str(caught.value) == (
        f"this run has succeeded already (stop.{next(iter(stop))} is met: 12 of 10); to continue training, "
        f"change the rule: {remedy}"
    )
    assert not trained

    train("CartPole-v1", workdir="run", resume=True, progress=False, environment_steps=20)
    assert len(trained) == 1


def test_a_process_of_a_run_that_imports_the_script_starts_no_other_run(
    trained: list[JobFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENV_JOB_FILE, "job.json")
    with pytest.raises(UsageError, match='put the call below if __name__ == "__main__"'):
        train("script:Own-v0", environment_steps=10)
    assert not trained


@pytest.mark.parametrize(
    ("file", "package", "folder"),
    [
        ("code/script.py", None, "code"),
        ("code/script.py", "", "code"),
        ("code/one/script.py", "one", "code"),
        ("code/one/two/__main__.py", "one.two", "code"),
        (None, None, "."),
    ],
)
def test_modules_are_found_where_the_program_finds_them(
    tmp_path: Path,
    trained: list[JobFile],
    monkeypatch: pytest.MonkeyPatch,
    file: str | None,
    package: str | None,
    folder: str,
) -> None:
    """``package`` is the package of `python -m`."""
    main = ModuleType("__main__")
    if file is not None:
        main.__file__ = str(tmp_path / file)
    main.__spec__ = None if package is None else SimpleNamespace(parent=package)  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "__main__", main)

    train("CartPole-v1", environment_steps=10, progress=False)

    assert trained[0].code_folder == tmp_path / folder


def test_a_slow_callback_misses_progress_but_no_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    def at(step: int) -> Snapshot:
        return snapshot(
            progress={"updates": step},
            evaluation=EvaluationStatus(last=EvaluationResult(environment_steps=step // 10)),
        )

    async def quick(runtime: Any, request: Any, file: JobFile, folder: Path, show: Show) -> Snapshot:
        for step in range(1, 101):
            show(at(step))
        over.set()
        return at(100)

    monkeypatch.setattr(engine_thread, "train_on", quick)
    over = threading.Event()
    updates: list[int] = []
    evaluated: list[int] = []

    def slow(updated: int) -> None:
        updates.append(updated)
        assert over.wait(10)

    train(
        "CartPole-v1",
        environment_steps=10,
        progress=False,
        on_update=lambda progress: slow(progress.updates),
        on_evaluation=lambda evaluation: evaluated.append(evaluation.environment_steps),
    )

    assert len(updates) <= 2
    assert updates[-1] == 100
    assert evaluated == list(range(11))
