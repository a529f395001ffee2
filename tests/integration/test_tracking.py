"""A run is tracked by the real packages of W&B and MLflow, also across a restart of the learner."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from rltraining_api.tracking import Tracking
from rltraining_trainer.tracking.backends import MlflowRun
from rltraining_trainer.tracking.messages import Opening, Point
from small_jobs import small_job
from training import LEARNER, Run, Train, eventually


def wandb_files(folder: Path) -> list[Path]:
    """The file of each start of the learner, in their order."""
    return sorted(folder.glob("wandb/offline-run-*/run-*.wandb"))


def wandb_records(file: Path) -> Iterator[bytes]:
    """The complete records of a file of W&B: a header, then LevelDB's log format of parts in blocks of 32 KiB."""
    content, at, record = file.read_bytes(), 7, b""
    while at + 7 <= len(content):
        if (room := 32_768 - at % 32_768) < 7:
            at += room
            continue
        _, size, kind = struct.unpack_from("<IHB", content, at)
        record += content[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4) and at <= len(content):  # the only part, or the last one
            yield record
            record = b""


def wandb_steps(file: Path, run_id: str) -> list[int]:
    """The steps of the points in a file of W&B, which belongs to this run."""
    from wandb.proto.wandb_internal_pb2 import Record

    steps = []
    for record in map(Record.FromString, wandb_records(file)):
        if record.HasField("run"):
            assert record.run.run_id == run_id
        values = {item.key or item.nested_key[0]: item.value_json for item in record.history.item}
        if "environmentSteps" in values:
            steps.append(int(values["environmentSteps"]))
    return steps


def mlflow_points(store: Path) -> list[tuple[int, int]]:
    """The time in ms and the step of each point in a folder of MLflow: lines of time, value and step."""
    lines = [line.split() for file in store.glob("*/*/metrics/updates") for line in file.open()]
    return [(int(line[0]), int(line[2])) for line in lines if len(line) == 3]


@pytest.mark.filterwarnings("ignore")  # of wandb, when it is imported here to read its file
def test_a_restarted_learner_continues_its_tracked_runs(train: Train, tmp_path: Path) -> None:
    store = tmp_path / "mlruns"

    async def scenario(run: Run) -> None:
        await run.until_learning()
        await run.until_checkpoint()
        uid = str(run.job.metadata.uid)

        def tracked(point: dict[str, Any], life: int) -> bool:
            """Whether both trackers have a point, of which W&B has a file for each life of the learner.

            A second life may repeat the steps of the first, but not its times. A tracker that fails would be
            tried again after a while: its warning ends the wait.
            """
            assert "spec.tracking" not in (log := run.log(LEARNER)), log
            step, files = point["environmentSteps"], wandb_files(run.cluster.workdir)
            in_wandb = len(files) == life and step in wandb_steps(files[-1], uid)
            return in_wandb and (int(1000 * point["time"]), step) in mlflow_points(store)

        # The learner dies after its points have reached both trackers, and its successor's do as well.
        old = run.points[0]
        await eventually(lambda: tracked(old, 1))
        run.kill(LEARNER)
        new = await run.until_another_life(old["run"])
        await eventually(lambda: tracked(new, 2))
        await run.finish()
        steps = {point["environmentSteps"] for point in run.points if point["run"] == new["run"]}
        assert "spec.tracking" not in (log := run.log(LEARNER)), log

        # MLflow has one run, with the points of both lives.
        (meta,) = store.glob("*/*/meta.yaml")
        assert yaml.safe_load(meta.read_text())["status"] == 3, "finished"
        assert (meta.parent / "params" / "algorithm.impala.unrollLength").read_text() == "16"
        assert steps | {old["environmentSteps"]} <= {step for _, step in mlflow_points(store)}

        # W&B has one file for each life, of the same run.
        first, second = wandb_files(run.cluster.workdir)
        assert old["environmentSteps"] in wandb_steps(first, uid)
        assert steps <= set(wandb_steps(second, uid))

    tracking = {
        "wandb": {"project": "demo", "mode": "Offline"},
        "mlflow": {"experiment": "demo", "trackingUri": store.as_uri()},
    }
    train(small_job(tracking=tracking, sampler={"replicas": 1}), scenario)


def opening_of(store: Path, **config: Any) -> Opening:
    """A run in a folder of MLflow."""
    tracking = Tracking.model_validate({"mlflow": {"experiment": "demo", "trackingUri": store.as_uri()}})
    return Opening(
        kind="mlflow", tracking=tracking, run_id="uid", name="demo", folder=str(store), config=config
    )


@pytest.mark.filterwarnings("ignore")  # of MLflow, which leaves files open
def test_a_run_in_mlflow_continues_after_a_kill_between_the_creation_of_a_metric_and_its_first_value(
    tmp_path: Path,
) -> None:
    opening = opening_of(tmp_path)
    MlflowRun(opening).log([Point(step=1, time=1.0, values={"updates": 1.0})])
    (updates,) = tmp_path.glob("*/*/metrics/updates")

    (updates.parent / "loss.policy").touch()
    MlflowRun(opening).log([Point(step=2, time=2.0, values={"updates": 2.0})])

    assert mlflow_points(tmp_path) == [(1000, 1), (2000, 2)]


@pytest.mark.filterwarnings("ignore")  # of MLflow, which leaves files open
def test_a_run_in_mlflow_gets_its_parameters_after_an_outage_between_its_creation_and_the_parameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    def down(*_: Any, **__: Any) -> None:
        raise ConnectionError("the server is down")

    opening = opening_of(tmp_path, seed=1, environment={"id": "CartPole-v1"})
    with monkeypatch.context() as outage:
        outage.setattr(mlflow.MlflowClient, "log_batch", down)
        with pytest.raises(ConnectionError):
            MlflowRun(opening)

    # Parameters that exist are kept, also if the job has changed: MLflow refuses another value.
    MlflowRun(opening)
    MlflowRun(opening.model_copy(update={"config": {**opening.config, "seed": 2}}))

    (folder,) = tmp_path.glob("*/*/params")
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        "seed": "1",
        "environment.id": "CartPole-v1",
    }
