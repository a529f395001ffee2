"""Makes the recorded updates of a learner again, on one machine and without samplers (see `world.recorder`)."""

from __future__ import annotations

import json
import pdb
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import torch
from rltraining_api.job import RLTrainingJob
from torch import Tensor

from rltraining_trainer.checkpoint import restore_rng
from rltraining_trainer.dataflow.frames import read_frames
from rltraining_trainer.dataflow.gradients.accounts import Push
from rltraining_trainer.dataflow.reduce import Reduce, alone
from rltraining_trainer.errors import BadConfiguration, Diverged
from rltraining_trainer.roles.context import Context
from rltraining_trainer.roles.entry_point import functions_of
from rltraining_trainer.roles.resolve import resolve_defaults
from rltraining_trainer.transport.payload import Unreadable
from rltraining_trainer.world import World
from rltraining_trainer.world.recorder import FOLDER, PATTERN, digest, from_plain
from rltraining_trainer.world.run import Run

Change = Callable[[str], RLTrainingJob]
"""Returns a job with changed fields, given its JSON."""


@dataclass
class Rerun:
    """Makes recorded updates again, and compares them with the recorded ones.

    Args:
        folder: folder of the run.
        first: number of updates before the first reported one. None: the oldest recorded update.
        last: number of updates before the last one. None: the newest recorded update.
        change: None: the recorded job.
        debug: whether to start a debugger at the last update.
        on_terms: receives the number of updates before an update, and its terms of the loss.
    """

    folder: Path
    first: int | None = None
    last: int | None = None
    change: Change | None = None
    debug: bool = False
    on_terms: Callable[[int, Mapping[str, float]], None] = lambda update, terms: None

    updates: list[int] = field(default_factory=list)
    """For each update that was made again, the number of updates before it."""
    items: set[tuple[str, str, int]] = field(default_factory=set)
    """The unrolls and gradients that were used: sampler, incarnation and number. Items of a replay are not counted."""
    used_twice: set[tuple[str, str, int]] = field(default_factory=set)
    compared: int = 0
    """Number of states that equal the recorded ones."""
    differs_at: int | None = None
    """The first update after which the state differed from the recorded one."""
    gaps: list[int] = field(default_factory=list)
    """Numbers of updates with which a learner continued although the previous recording ends at another update."""
    error: str | None = None
    """Why the last update diverged."""
    recorded_error: str | None = None

    def run(self) -> None:
        """Makes the updates. Raises BadConfiguration if the recording is missing or damaged, or the changed job is wrong."""
        try:
            files = Files(self.folder)
            frames = Frames(files.frames_from(files.start_of(self.first)))
            target = self._last_update(files) if self.debug else None
            reached: Any = None
            while frames.next is not None and not self.is_over:
                reached = self._run_incarnation(frames, reached, target)
        except (OSError, Unreadable) as error:
            raise BadConfiguration(f"the recording cannot be read: {error}") from None

    @property
    def is_over(self) -> bool:
        return self.error is not None or self.differs_at is not None

    @property
    def is_same_error(self) -> bool:
        """Whether the last update failed as in the run. Some terms of the loss may be of an earlier update."""
        own, recorded = (text and text.split(" (")[0] for text in (self.error, self.recorded_error))
        return own == recorded

    def reports(self, update: int) -> bool:
        return self.first is None or update >= self.first

    def count(self, frame: Mapping[str, Any], batch: Any) -> None:
        """Counts the items of an update's batch."""
        pushes = batch if isinstance(batch, list) else ()
        sources = [tuple(push.source) for push in pushes if isinstance(push, Push)]
        for source in frame.get("sources", sources):
            (self.used_twice if source in self.items else self.items).add(source)

    def check(self, algorithm: Any, update: int, updates: int, recorded: str) -> None:
        """Compares the learner's state after an update with the recorded one."""
        if self.change is not None:
            return
        if algorithm.updates == updates and digest(algorithm.get_state()) == recorded:
            self.compared += 1
        else:
            self.differs_at = update

    def _run_incarnation(self, frames: Frames, reached: Any, target: int | None) -> Any:
        """Makes the updates of one incarnation of the learner. Returns its algorithm.

        Args:
            reached: the algorithm in the last state of the previous incarnation.
            target: the update at which the debugger starts.
        """
        assert frames.next is not None
        state = frames.next
        job = RLTrainingJob.model_validate_json(state["job"], extra="ignore")
        if self.change is not None:
            job = changed(job, self.change(state["job"]))
        if reached is not None and reached.updates != state["update"]:
            self.gaps.append(state["update"])
        elif reached is not None:
            self.check(reached, state["update"], state["update"], digest(state["state"]))
        torch.set_num_threads(state["threads"])
        with tempfile.TemporaryDirectory() as scratch:
            context = resolve_defaults(_context(job, Path(scratch)))
            world = RerunWorld(context, lambda error: None)
            world._run = RerunRun(context, world, self, frames, target)
            try:
                functions_of(job.spec.algorithm)["learner"](world)
            except Finished:
                pass
            finally:
                world.close()
        return world._run.paths.algorithm

    def _last_update(self, files: Files) -> int:
        """Returns the number of the last update that is made."""
        frames = files.frames_from(files.start_of(self.first))
        numbers = (frame["update"] for frame in frames if frame["kind"] == "update")
        return max((number for number in numbers if self.last is None or number <= self.last), default=-1)


def changed(recorded: RLTrainingJob, job: RLTrainingJob) -> RLTrainingJob:
    """Returns the changed job. Raises BadConfiguration if its algorithm cannot learn from the recorded data."""
    name, other = recorded.spec.algorithm.name, job.spec.algorithm.name
    if name != other:
        raise BadConfiguration(
            f"--set algorithm: the updates are those of {name}, which {other} cannot make: leave it out"
        )
    return job


class Frames:
    """Iterates over frames. ``next`` is the next frame, or None."""

    def __init__(self, frames: Iterator[dict[str, Any]]) -> None:
        self._frames = frames
        self.next = next(frames, None)

    def take(self) -> dict[str, Any]:
        assert self.next is not None
        taken, self.next = self.next, next(self._frames, None)
        return taken


class Finished(Exception):
    """All updates are made."""


class File:
    """One file of a recording: a state, and the updates after it."""

    def __init__(self, path: Path) -> None:
        self.path, self._frames = path, read_frames(path)
        self.state: dict[str, Any] = next(self._frames, {})

    @property
    def start(self) -> int:
        """Number of updates before its first one."""
        return int(self.state["update"])

    def frames(self) -> Iterator[dict[str, Any]]:
        yield self.state
        yield from self._frames


class Files:
    """The files of a run's recording. Raises BadConfiguration if there are none."""

    def __init__(self, run: Path) -> None:
        self._folder = run / FOLDER
        files = [File(path) for path in sorted(self._folder.glob(PATTERN))]
        self._files = [file for file in files if file.state]
        if not self._files:
            raise BadConfiguration(
                f"{self._folder}: nothing is recorded: train with --set recording.megabytes=256. Without it, only an update "
                "whose loss is NaN is kept"
            )

    def start_of(self, update: int | None) -> File:
        """Returns the newest file that begins with this update or before it. None: the oldest file."""
        if update is None:
            return self._files[0]
        found = [file for file in self._files if file.start <= update]
        if not found:
            raise BadConfiguration(
                f"--from {update}: the oldest recorded state is of update {self._files[0].start}"
            )
        return found[-1]

    def frames_from(self, start: File) -> Iterator[dict[str, Any]]:
        """Yields the frames from a file on. Leaves out updates that a restarted learner repeated from a checkpoint."""
        files = self._files[self._files.index(start) :]
        for number, file in enumerate(files):
            ends = [later.start for later in files[number + 1 :]]
            for frame in file.frames():
                if not ends or frame["update"] < min(ends):
                    yield frame


class RerunRun(Run):
    """A run without samplers, checkpoints and status."""

    def __init__(
        self, context: Context, world: World, rerun: Rerun, frames: Frames, target: int | None
    ) -> None:
        super().__init__(context, world._live, world._endpoint, None, world.device)
        self._rerun, self._frames, self._target = rerun, frames, target
        self.frame: dict[str, Any] = {}
        """The data of the update in progress."""

    def active(self) -> NoReturn:
        raise BadConfiguration("only updates of run.train() can be made again, not a loop with run.active()")

    def count(self, *args: Any, **kwargs: Any) -> None:
        """Counts nothing: the run has counted these steps."""

    def take_moments(self) -> list[Tensor]:
        return list(self.frame["moments"])

    def train(
        self,
        next_batch: Callable[[float], Any],
        update: Callable[[Any, Reduce], Mapping[str, Tensor | float]],
    ) -> NoReturn:
        """Makes the recorded updates of this incarnation."""
        rerun, algorithm, frames = self._rerun, self.paths.algorithm, self._frames

        # Begin with the recorded state.
        state = frames.take()
        try:
            algorithm.set_state(state["state"])
        except (ValueError, RuntimeError, KeyError) as error:
            raise BadConfiguration(f"the recorded state does not fit the job: {error}") from None
        restore_rng(state["rng"])

        # Make the updates, and compare the states.
        while (following := frames.next) is not None and not rerun.is_over:
            if following["kind"] == "state" and following["incarnation"] != state["incarnation"]:
                break
            frame = frames.take()
            number = frame["update"]
            if rerun.last is not None and number > rerun.last:
                frames.next = None
                break
            if frame["kind"] == "state":
                rerun.check(algorithm, number, number, digest(frame["state"]))
            elif frame["kind"] == "after":
                rerun.check(algorithm, number, frame["updates"], frame["digest"])
            elif frame["kind"] == "error":
                rerun.recorded_error = frame["text"]
            else:
                self._update(frame, update)
        raise Finished

    def _update(self, frame: dict[str, Any], update: Callable[..., Any]) -> None:
        """Makes one update."""
        rerun, number, following = self._rerun, frame["update"], self._frames.next
        algorithm: Any = self.paths.algorithm
        self.frame = frame
        algorithm.total_steps = frame["total_steps"]
        batch = from_plain(frame["batch"])
        rerun.count(frame, batch)
        if rerun.reports(number):
            rerun.updates.append(number)
        diverges = following is not None and following["kind"] == "error"
        try:
            steps_in = number == self._target and not diverges
            terms: Any = pdb.runcall(update, batch, alone) if steps_in else update(batch, alone)
        except Diverged as error:
            rerun.error = str(error)
            if following is not None and diverges:
                rerun.recorded_error = following["text"]
            if rerun.debug:
                pdb.post_mortem(error.__traceback__)
            return
        self.models.publish(algorithm.parameters)
        if rerun.reports(number):
            rerun.on_terms(number, {name: float(term) for name, term in terms.items()})


class RecordedPath:
    """A replay or gradients with the data of the recording."""

    def __init__(self, run: RerunRun) -> None:
        self._run = run
        self._ended = False

    @property
    def begins_rollout(self) -> bool:
        """Whether the next update is the first one of its rollout, as in the recorded run."""
        ended, self._ended = self._ended, False
        return ended or bool(self._run.frame["begins_rollout"])

    def end_iteration(self) -> None:
        """Ends the updates of a rollout."""
        self._ended = True

    def lag(self, push: Any) -> int:
        """Returns 0: the lag of recorded gradients was counted in their run."""
        return 0

    def sample(self, timeout: float = 1.0) -> None:
        """Is never called, since ``RerunRun.train`` takes the batches from the recording."""
        raise NotImplementedError

    take = sample

    def update_priorities(self, batch: Any, priorities: Tensor) -> None:
        """Does nothing: priorities only change later samples, and these are recorded."""

    def discard(self, batch: Any) -> None:
        """Does nothing."""


class RerunWorld(World):
    """The world of a learner with the data of a recording."""

    _run: RerunRun

    def run(self, policy: Any = None, *, algorithm: Any = None, **state: Any) -> Run:
        assert algorithm is not None, "others are not recorded"
        self._run.paths.algorithm = algorithm
        return self._run

    def replay(self, *args: Any, **kwargs: Any) -> Any:
        return RecordedPath(self._run)

    def gradients(self, *args: Any, **kwargs: Any) -> Any:
        return RecordedPath(self._run)


def _context(job: RLTrainingJob, scratch: Path) -> Context:
    file = scratch / "job.json"
    file.write_text(json.dumps(job.to_dict()))
    return Context(
        job=job,
        job_file=file,
        token="",
        pod=f"{job.metadata.name}-learner-0",
        index=0,
        http_port=0,
        learners=("http://127.0.0.1:0",),
        replays=(),
        output=scratch,
        http_host="127.0.0.1",
    )
