"""The trackers' packages: how a run is opened or continued, logged and ended. Runs in the child
process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from rltraining_trainer.tracking.messages import End, Kind, Opening, Point

STEP = "environmentSteps"
"""The name under which W&B gets the step of a point. The steps that W&B counts cannot go back to a checkpoint."""
UID_TAG = "rltraining.dev/uid"
"""The tag by which a continued run is found in MLflow, which assigns its ids itself."""
PARAMS_MAX, PARAM_LENGTH_MAX = 100, 500
"""MLflow's limits: parameters in a request, and characters of a value that all its stores accept."""
METRICS_MAX = 1000
"""MLflow's limit of values in a request."""
UNAUTHENTICATED = 401
"""The HTTP status of an answer to a request with missing or wrong credentials."""


class CredentialsRefused(Exception):
    """The server refused the credentials: one sentence with the remedy."""


class Backend(Protocol):
    """A tracked run. All methods may raise any exception."""

    def log(self, points: Sequence[Point]) -> None: ...

    def end(self, end: End) -> None: ...


class WandbRun:
    """A run of Weights & Biases. Its id is the job's id."""

    def __init__(self, opening: Opening) -> None:
        import wandb

        spec = opening.tracking.wandb
        assert spec is not None
        self._run = wandb.init(
            project=spec.project,
            entity=spec.entity,
            group=spec.group,
            mode=None if spec.mode is None else "offline" if spec.mode == "Offline" else "online",
            id=opening.run_id,
            resume="allow",
            name=opening.name,
            config=opening.config,
            dir=opening.folder,
            settings=wandb.Settings(
                console="off", silent=True, disable_git=True, disable_code=True, init_timeout=30
            ),
        )
        self._run.define_metric("*", step_metric=STEP)
        if not self._run.offline:  # MLflow's package prints one too
            print(f"W&B shows the run at {self._run.url}", flush=True)

    def log(self, points: Sequence[Point]) -> None:
        for point in points:
            self._run.log({**point.values, STEP: point.step})

    def end(self, end: End) -> None:
        self._run.finish(exit_code=0 if end == "finished" else 1)


class MlflowRun:
    """A run of MLflow, with the id of the job as a tag."""

    def __init__(self, opening: Opening) -> None:
        spec = opening.tracking.mlflow
        assert spec is not None
        uri = spec.tracking_uri or os.environ["MLFLOW_TRACKING_URI"]
        # Report failures soon: the learner tries again. By default a request takes many minutes.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
        # Permit a folder of files, which MLflow refuses by default since 3.13.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        from mlflow import MlflowClient
        from mlflow.utils.file_utils import local_file_uri_to_path

        # In a folder `policyLag` is a file, so `policyLag/p50` cannot be one.
        self._separator = "." if uri.startswith(("file:", "/", ".")) else "/"
        if self._separator == ".":
            remove_empty_metrics(Path(local_file_uri_to_path(uri)), opening.run_id)
        self._client = MlflowClient(tracking_uri=uri)
        with explained():
            self._id = self._open(opening, self._experiment(spec.experiment))

    def log(self, points: Sequence[Point]) -> None:
        from mlflow.entities import Metric

        metrics = [
            Metric(name.replace("/", self._separator), value, int(1000 * point.time), point.step)
            for point in points
            for name, value in point.values.items()
        ]
        with explained():
            for start in range(0, len(metrics), METRICS_MAX):
                self._client.log_batch(self._id, metrics=metrics[start : start + METRICS_MAX])

    def end(self, end: End) -> None:
        with explained():
            self._client.set_terminated(self._id, status=end.upper())

    def _open(self, opening: Opening, experiment: str) -> str:
        """Continues the run of this job, or creates it. Returns its id."""
        from mlflow.entities import Param

        found = self._client.search_runs(
            [experiment], f"tags.`{UID_TAG}` = '{opening.run_id}'", max_results=1
        )
        if found:
            run = found[0]
            self._client.update_run(run.info.run_id, status="RUNNING")
        else:
            run = self._client.create_run(experiment, run_name=opening.name, tags={UID_TAG: opening.run_id})
        # Log the hyperparameters, which MLflow does not let change. An outage may have left some out.
        params = [
            Param(key, str(value)[:PARAM_LENGTH_MAX])
            for key, value in flat(opening.config)
            if value != "" and key not in run.data.params
        ]
        for start in range(0, len(params), PARAMS_MAX):
            self._client.log_batch(run.info.run_id, params=params[start : start + PARAMS_MAX])
        return str(run.info.run_id)

    def _experiment(self, name: str) -> str:
        """Returns the id of the experiment, which is created if it does not exist."""
        from mlflow.exceptions import MlflowException

        if (found := self._client.get_experiment_by_name(name)) is not None:
            return str(found.experiment_id)
        with suppress(MlflowException):  # another job of a sweep has just created it
            return str(self._client.create_experiment(name))
        found = self._client.get_experiment_by_name(name)
        assert found is not None, f"the experiment {name} cannot be created"
        return str(found.experiment_id)


@contextmanager
def explained() -> Iterator[None]:
    """Converts an error of MLflow inside the block to CredentialsRefused if the server refused the credentials."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        if error.get_http_status_code() != UNAUTHENTICATED:
            raise
        raise CredentialsRefused(
            f"the server refuses the credentials (HTTP {UNAUTHENTICATED}): set MLFLOW_TRACKING_USERNAME and "
            "MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN (in a cluster: in the Secret of "
            "spec.tracking.secretName)"
        ) from error


def remove_empty_metrics(store: Path, run_id: str) -> None:
    """Removes the metrics of a run that have no value from a folder of MLflow.

    MLflow creates a metric's file before it writes the first value. If it is killed in between, it can
    no longer search the runs of the experiment: "Metric is malformed. No data found".
    """
    for tag in store.glob(f"*/*/tags/{UID_TAG}"):
        if tag.read_text() == run_id:
            run = tag.parents[len(Path(UID_TAG).parts)]
            for file in (run / "metrics").rglob("*"):
                if file.is_file() and not file.stat().st_size:
                    file.unlink()


BACKENDS: Mapping[Kind, Callable[[Opening], Backend]] = {"wandb": WandbRun, "mlflow": MlflowRun}


def flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the values of a nested object by dotted paths: `algorithm.ppo.epochs`."""
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
