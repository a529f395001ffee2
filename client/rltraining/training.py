"""`train`: a run from a script or a notebook, with the engine of `rltrain run`."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rltraining_api.contract import ENV_JOB_FILE
from rltraining_api.evaluation import EvaluationResult
from rltraining_api.extras import install_command
from rltraining_api.job import RLTrainingJob
from rltraining_api.manifest import ManifestError, parse_job
from rltraining_api.names import API_VERSION, KIND
from rltraining_api.status import Progress, Status

from rltraining import history, summary
from rltraining import workdir as run_folder
from rltraining.display import Display, choose
from rltraining.engine_thread import EngineThread
from rltraining.errors import ClientError, UsageError
from rltraining.jobfile import SOURCE_ANNOTATION, JobFile
from rltraining.local import require_local
from rltraining.run import check_runs_here, draw, prepared
from rltraining.sdk.errors import JobFailedError
from rltraining.snapshot import Snapshot

if TYPE_CHECKING:
    import pandas
    from rltraining_trainer.policy import Policy


@dataclass(frozen=True)
class Run:
    """A finished run: its folder and its results."""

    folder: Path
    """Contains the policy, the checkpoints, the curves and the logs, as after `rltrain run`."""
    job: RLTrainingJob
    """The job with its last status."""
    interrupted: bool = False
    """Whether Ctrl-C or the notebook's stop button ended it. `train(..., workdir=run.folder, resume=True)` continues it."""

    @property
    def status(self) -> Status:
        """The job's last status: phase, progress, evaluations and conditions."""
        return self.job.status

    @cached_property
    def policy(self) -> Policy:
        """The last policy. Runs the code that the job names, as the training has done.

        Raises BadConfiguration if the run ended before it wrote a policy.
        """
        from rltraining_trainer.policy import Policy

        return Policy.load(str(self.folder), trust_code=True)

    @property
    def points(self) -> tuple[Mapping[str, Any], ...]:
        """The points of the curves, at most 2,000, as `progress.jsonl` has them."""
        return history.read(self.folder)

    @property
    def curve(self) -> pandas.DataFrame:
        """The points of the curves as a data frame, with a column for each metric.

        Raises ClientError if pandas is missing.
        """
        try:
            import pandas
        except ImportError:
            raise ClientError(
                f"run.curve needs pandas: use run.points, or {install_command('notebook')}"
            ) from None
        return pandas.DataFrame(self.points)


def train(
    environment: str | Mapping[str, Any],
    *,
    algorithm: str | Mapping[str, Any] = "ppo",
    environment_steps: float | None = None,
    samplers: int = 2,
    seed: int = 0,
    spec: Mapping[str, Any] | None = None,
    workdir: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    on_update: Callable[[Progress], None] | None = None,
    on_evaluation: Callable[[EvaluationResult], None] | None = None,
    progress: bool = True,
) -> Run:
    """Trains a policy on this machine, and returns when the run is over.

        from rltraining import train

        run = train("CartPole-v1", algorithm="ppo", environment_steps=100_000)
        action = run.policy.act(observation)
        run.curve.plot("environmentSteps", "meanReturn")

    The learner and the samplers are separate processes. Environments and networks must therefore be
    in a module that they can import: an installed one, or a file beside the script or the notebook.
    Ctrl-C stops the run in order. A second Ctrl-C kills its processes.

    Args:
        environment: id of the environment, or `spec.environment` as in a manifest: `{"id": ..., "numEnvs": 16}`.
        algorithm: key of the algorithm, such as `ppo` or `dqnApex`, or `spec.algorithm`:
            `{"ppo": {"learningRate": 1e-3}}`. Defaults of settings depend on the environment.
        environment_steps: number of steps after which the run ends. None: another rule in `spec["stop"]` ends it.
        samplers: number of sampler processes.
        seed: seed of all random numbers.
        spec: further parts of `spec`, as in a manifest: `{"network": ..., "evaluation": ..., "stop": ...}`.
        workdir: folder of the run. None: a new folder in `runs/`.
        resume: whether to continue the run in `workdir`.
        overwrite: whether to replace the run in `workdir`.
        on_update: called with the progress when there were updates, at most four times a second.
        on_evaluation: called with each evaluation, if `spec` has `evaluation`.
        progress: whether to show the progress.

    Returns:
        The run. Its phase is `Succeeded`, or `Suspended` if it was interrupted.

    Raises:
        UsageError: an argument is wrong. Nothing was started.
        JobFailedError: the run failed, with the traceback if the user's code raised. Whatever a callback
            raises, after the run was stopped in order.
    """
    if ENV_JOB_FILE in os.environ:
        raise UsageError(
            "train() was called in a process of a run, which has imported your script: "
            'put the call below if __name__ == "__main__":'
        )
    require_local("train()")
    with ExitStack() as held:
        with _arguments_named():
            file = _job_file(environment, algorithm, environment_steps, samplers, seed, spec or {})
            folder, mode = _folder(file.job.metadata.name, workdir, resume, overwrite)
            held.enter_context(prepared(file, folder, mode))
        display = choose(sys.stdout, plain=False) if progress else None
        try:
            last = _follow(file, folder, display, _Callbacks(on_update, on_evaluation))
        finally:
            if display is not None:
                display.close()
        draw(last, folder)
    if last.status.phase == "Failed":
        raise JobFailedError(last.job, summary.failure(last.status))
    return Run(folder, last.job, interrupted=last.signal is not None and not last.status.completion_time)


def _job_file(
    environment: str | Mapping[str, Any],
    algorithm: str | Mapping[str, Any],
    environment_steps: float | None,
    samplers: int,
    seed: int,
    spec: Mapping[str, Any],
) -> JobFile:
    """Makes the manifest of the arguments. Raises UsageError with a sentence per problem."""
    spec = _object("spec", spec)
    sampler, stop = (_object(f"spec.{name}", spec.get(name, {})) for name in ("sampler", "stop"))
    arguments: dict[str, str] = {name: name for name in ("environment", "algorithm", "seed") if name in spec}
    if "replicas" in sampler:
        arguments["sampler.replicas"] = "samplers"
    if environment_steps is not None and "environmentSteps" in stop:
        arguments["stop.environmentSteps"] = "environment_steps"
    for field, argument in arguments.items():
        raise UsageError(f"spec has {field}, which is an argument of train(): set {argument} instead")
    chosen: dict[str, Any] = {
        "environment": {"id": environment}
        if isinstance(environment, str)
        else _object("environment", environment, "an id or a dictionary"),
        "algorithm": {algorithm: {}}
        if isinstance(algorithm, str)
        else _object("algorithm", algorithm, "a name or a dictionary"),
        "sampler": sampler | {"replicas": _plain(samplers)},
        "stop": stop,
        "seed": _plain(seed),
    }
    if environment_steps is not None:
        steps = _plain(environment_steps)
        whole = isinstance(steps, float) and steps.is_integer()  # such as 1e6
        stop["environmentSteps"] = int(steps) if whole else steps
    if not chosen["stop"]:
        raise UsageError(
            'environment_steps is missing: when should the run end? spec={"stop": ...} has other rules'
        )
    document = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": _name(chosen["environment"].get("id")),
            "annotations": {SOURCE_ANNOTATION: str(_script())},
        },
        "spec": {**spec, **chosen},
    }
    try:
        file = JobFile(parse_job(document, "train()"))
    except ManifestError as error:
        raise UsageError(*error.problems) from None
    check_runs_here(file)
    return file


def _object(name: str, value: object, expected: str = "a dictionary") -> dict[str, Any]:
    """Returns a part of the manifest. Raises UsageError."""
    if not isinstance(value, Mapping):
        raise UsageError(f"{name}: must be {expected}, got Python's {type(value).__name__}")
    return {key: _plain(item) for key, item in value.items()}


def _plain(value: Any) -> Any:
    """Replaces scalars of numpy, which manifests cannot have, by Python's numbers."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.item() if getattr(value, "ndim", None) == 0 else value


@contextmanager
def _arguments_named() -> Iterator[None]:
    """Lets messages name the arguments of `train` instead of the options of `rltrain run`."""
    try:
        yield
    except UsageError as error:
        problems = list(error.problems)
        for option, argument in _ARGUMENTS.items():
            problems = [problem.replace(option, argument) for problem in problems]
        raise UsageError(*problems) from None


_ARGUMENTS = {
    "--workdir": "workdir",
    "--resume": "resume=True",
    "--overwrite": "overwrite=True",
    "add --set ": "set ",
    "--set stop.environmentSteps=...": "set another environment_steps",
    "--set stop.": "set another spec.stop.",
    "=...": "",
    "beside the manifest": "beside the script or notebook",
}


def _name(environment: object) -> str:
    """Returns the job's name: that of its environment, in the letters that names may have."""
    words = re.findall("[a-z0-9]+", str(environment).rpartition(":")[2].lower())
    return "-".join(words)[:40].strip("-") or "job"


def _script() -> Path:
    """Returns a path beside which the run's processes find modules: that of the caller's program."""
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    if not file:
        return Path.cwd() / "notebook"
    # A program that `python -m package.module` runs finds modules beside its package.
    spec = getattr(main, "__spec__", None)
    packages = spec.parent.split(".") if spec is not None and spec.parent else []
    path = Path(file).resolve()
    return (path, *path.parents)[len(packages)]


def _folder(
    name: str, workdir: str | Path | None, resume: bool, overwrite: bool
) -> tuple[Path, run_folder.Mode]:
    """Returns the run's folder, and how it is used. Raises UsageError."""
    if resume and overwrite:
        raise UsageError("resume and overwrite exclude each other: leave one out")
    if workdir is None and (resume or overwrite):
        raise UsageError("workdir is missing: name the folder of the run")
    now = datetime.now().astimezone()
    folder = run_folder.create_default(name, now) if workdir is None else Path(workdir)
    return folder, "resume" if resume else "overwrite" if overwrite else "new"


class _Callbacks:
    """Calls the user's functions when a snapshot has news for them."""

    def __init__(
        self,
        on_update: Callable[[Progress], None] | None,
        on_evaluation: Callable[[EvaluationResult], None] | None,
    ) -> None:
        self._on_update, self._on_evaluation = on_update, on_evaluation
        self._updates = 0
        self._evaluated: EvaluationResult | None = None

    def updated(self, snapshot: Snapshot) -> None:
        progress = snapshot.status.progress
        if self._on_update is not None and progress.updates != self._updates:
            self._updates = progress.updates
            self._on_update(progress)

    def evaluated(self, snapshot: Snapshot) -> None:
        evaluation = snapshot.status.evaluation
        last = evaluation.last if evaluation is not None else None
        if self._on_evaluation is not None and last is not None and last != self._evaluated:
            self._evaluated = last
            self._on_evaluation(last)


def _follow(file: JobFile, folder: Path, display: Display | None, callbacks: _Callbacks) -> Snapshot:
    """Trains in a thread, and shows its snapshots here. Returns the last one."""
    engine = EngineThread(file, folder)
    engine.start()
    try:
        try:
            while (snapshot := engine.next_snapshot()) is not None:
                # A slow callback misses progress, so that it does not delay the end. It misses no evaluation.
                if engine.is_newest():
                    if display is not None:
                        display.show(snapshot)
                    callbacks.updated(snapshot)
                callbacks.evaluated(snapshot)
            last = engine.result()
            if display is not None:
                display.show(last)
            callbacks.updated(last)
        except KeyboardInterrupt:
            engine.stop(signal.SIGINT)
            while (snapshot := engine.next_snapshot()) is not None:
                if display is not None:
                    display.show(snapshot)
        except BaseException:  # of a callback
            engine.stop(signal.SIGTERM)
            engine.join()
            raise
    except KeyboardInterrupt:  # the second one
        engine.kill()
        raise
    return engine.result()
