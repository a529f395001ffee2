"""The learner's side: orders evaluations, replaces a lost evaluator and stores the best policy."""

from __future__ import annotations

import logging
import os
import queue
import shutil
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from torch import Tensor

from rltraining_trainer.errors import BadConfiguration, TrainerError, UserCodeError
from rltraining_trainer.evaluation.messages import LINE_MAX, Answer, Order
from rltraining_trainer.policy import PolicyError
from rltraining_trainer.policy.description import PolicyDescription
from rltraining_trainer.policy.export import publish_policy, saved_description, saved_weights
from rltraining_trainer.policy.policy import DESCRIPTION_FILE, WEIGHTS_FILE
from rltraining_trainer.process import describe_exit, start_child
from rltraining_trainer.transport import Backoff

_LOG = logging.getLogger(__name__)

MODULE = "rltraining_trainer.evaluation.process"
TRIES = 3
"""Number of attempts to evaluate a policy."""
_LONGEST_PAUSE = 10.0
"""Maximum number of seconds between two attempts."""
ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": ""}


class EvaluatorLost(Exception):
    """The process ended or sent an invalid answer. The message completes "the evaluator ..."."""


@dataclass
class Task:
    """A policy to evaluate, with the settings of its evaluation."""

    description: PolicyDescription
    weights: dict[str, Tensor]
    """A copy on the CPU."""
    episodes: int
    seed: int
    num_envs: int
    seconds: float
    to_beat: float | None
    void: bool = False
    """Whether the learner has rolled back to an earlier state. The policy is then not stored."""

    @property
    def step(self) -> int:
        return self.description.progress.environment_steps


@dataclass(frozen=True)
class Outcome:
    """The result of a task. Without an answer the policy was skipped."""

    task: Task
    answer: Answer | None = None
    best_policy_uri: str | None = None
    """Where the policy is stored, if it is the best."""
    not_kept: str = ""
    """Why the best policy could not be stored, in one sentence."""

    @property
    def error(self) -> TrainerError | None:
        """The error that ends the job, like an error in a sampler."""
        if self.answer is None or not self.answer.error:
            return None
        kind = UserCodeError if self.answer.error == "UserCodeError" else BadConfiguration
        return kind(f"evaluation at step {self.task.step:,}: {self.answer.message}")


class Evaluator:
    """Plays one policy at a time in a child process. Only `close` blocks.

    A thread sends tasks to the process and puts their outcomes into a queue.
    """

    lost = 0
    """Number of processes lost during an evaluation."""
    warning = ""
    """How the last process was lost, in one sentence. Empty after a success."""

    def __init__(self, folder: Path, best_directory: str) -> None:
        """Starts the thread.

        Args:
            folder: Passes policies to the process.
            best_directory: Path or URI where the best policy is stored.
        """
        self._folder, self._best_directory = folder, best_directory
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._current: Task | None = None
        self._closing = threading.Event()
        self._process: _Process | None = None
        self._thread = threading.Thread(target=self._run, name="evaluator", daemon=True)
        self._thread.start()

    @property
    def idle(self) -> bool:
        """Whether no task runs and the outcome of the previous task has been taken."""
        return self._current is None

    def start(self, task: Task) -> None:
        """Starts a task in the background. Requires `idle`."""
        assert self.idle, "one task at a time"
        self._current = task
        self._tasks.put(task)

    def take(self) -> Outcome | None:
        """Returns the outcome of the task, or None while there is none."""
        try:
            outcome = self._outcomes.get_nowait()
        except queue.Empty:
            return None
        self._current = None
        return outcome

    def void(self) -> None:
        """Voids the task in progress, after the learner has rolled back to an earlier state."""
        if self._current is not None:
            self._current.void = True

    def close(self) -> None:
        """Ends the process and any task in progress."""
        self._closing.set()
        self._tasks.put(None)
        if (process := self._process) is not None:
            process.kill()
        self._thread.join(10.0)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                outcome = self._carry_out(task)
            except Exception:  # a failed evaluation must not end the run
                _LOG.exception("the policy of step %d is not evaluated", task.step)
                outcome = Outcome(task)
            self._outcomes.put(outcome)
        if self._process is not None:
            self._process.kill()

    def _carry_out(self, task: Task) -> Outcome:
        """Plays the policy, in a new process after each loss, and stores it if it is the best."""
        backoff = Backoff(cap=_LONGEST_PAUSE)
        for attempt in range(1, TRIES + 1):
            try:
                answer = self._play(task)
            except EvaluatorLost as error:
                if self._closing.is_set():
                    break
                self.lost += 1
                what = "repeated" if attempt < TRIES else f"skipped after {TRIES} attempts"
                self.warning = f"the evaluator {error}; the evaluation at step {task.step:,} is {what}"
                _LOG.warning("%s", self.warning)
                if attempt < TRIES and backoff.wait(self._closing):
                    break
            else:
                self.warning = ""
                return self._keep(task, answer)
        return Outcome(task)

    def _play(self, task: Task) -> Answer:
        """Makes the process play the policy. Raises EvaluatorLost."""
        # Rewrite the policy in each attempt, since a lost process may have left a damaged folder.
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        (self._folder / WEIGHTS_FILE).write_bytes(saved_weights(task.weights))
        (self._folder / DESCRIPTION_FILE).write_bytes(saved_description(task.description))
        order = Order(
            folder=str(self._folder),
            episodes=task.episodes,
            seed=task.seed,
            num_envs=task.num_envs,
            seconds=task.seconds,
            to_beat=task.to_beat,
        )
        if self._process is None:
            self._process = _Process()
        try:
            return self._process.ask(order, self._closing)
        except EvaluatorLost:
            self._process.kill()
            self._process = None
            raise

    def _keep(self, task: Task, answer: Answer) -> Outcome:
        """Stores the policy if it is the best."""
        if not answer.is_best or task.void:
            return Outcome(task, answer)
        files = {path.name: path.read_bytes() for path in self._folder.iterdir()}
        try:
            uri = publish_policy(self._best_directory, files)
        except PolicyError as error:
            _LOG.warning("%s", error)
            return Outcome(task, answer, not_kept=str(error))
        return Outcome(task, answer, best_policy_uri=uri)


class _Process:
    """One evaluator process and the socket to it."""

    def __init__(self) -> None:
        env = {**os.environ, **ONE_THREAD, **NO_GPU}
        self._process, self._channel = start_child(MODULE, str(os.getpid()), env=env)
        self._lines = self._channel.makefile("rb")

    def ask(self, order: Order, closing: threading.Event) -> Answer:
        """Sends an order and waits for the answer. Raises EvaluatorLost, also on ``closing``."""
        if closing.is_set():
            raise EvaluatorLost("is closing")
        try:
            self._channel.sendall(order.model_dump_json().encode() + b"\n")
            line = self._lines.readline(LINE_MAX)
        except OSError:
            line = b""
        if not line:
            self._process.wait()
            raise EvaluatorLost(f"ended with {describe_exit(self._process.returncode)}")
        try:
            return Answer.model_validate_json(line)
        except ValidationError:
            raise EvaluatorLost("sent an invalid answer") from None

    def kill(self) -> None:
        """Ends the process. May be called from any thread. Then `ask` raises EvaluatorLost."""
        with suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
