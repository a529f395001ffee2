"""Schedules evaluations during training and processes their results in the first learner."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from gymnasium import spaces
from pydantic import ValidationError
from rltraining_api.contract import Warning
from rltraining_api.evaluation import EvaluationResult
from rltraining_api.status import Progress

from rltraining_trainer.checkpoint import snapshot
from rltraining_trainer.checkpoint.storage import open_storage
from rltraining_trainer.errors import BadConfiguration
from rltraining_trainer.evaluation.evaluator import Evaluator, Task
from rltraining_trainer.metrics import EvaluationTracker, Numbers
from rltraining_trainer.networks import PolicyNetwork
from rltraining_trainer.policy import check_finite
from rltraining_trainer.policy.description import PolicyDescription, describe
from rltraining_trainer.policy.policy import DESCRIPTION_FILE
from rltraining_trainer.roles.context import Context
from rltraining_trainer.roles.seeds import evaluation_seed

_LOG = logging.getLogger(__name__)

FOLDER = ".evaluation"
"""Folder below the output folder that passes policies to the evaluator."""
BEST = "policy/best"
"""Directory of the best policy in the run's storage."""
LAST_EVALUATION_SECONDS = 60.0
"""How long the end of a run waits for the evaluation of the last policy."""
PENDING_SECONDS = 3.0
"""Duration of that wait after which it is reported."""
SLOW_SECONDS = 600.0
"""Duration of an evaluation after which a warning is reported."""
ENDLESS_REMEDY = (
    "episodes without an end need environment.maxEpisodeSteps; fewer evaluation.episodes take less time"
)
"""Clause for the messages about evaluations that take too long."""
_PERIOD = 0.05
"""Seconds between two checks of the evaluator at the end of a run."""


class Evaluations:
    """Evaluates the policy every `everySteps` environment steps.

    If the evaluator is busy, the evaluation starts with the latest policy as soon as it is idle.
    Only `finish` and `close` block.
    """

    def __init__(
        self,
        context: Context,
        spaces: tuple[spaces.Space, spaces.Space],
        network: PolicyNetwork | None,
        tracker: EvaluationTracker,
        *,
        resumed: bool,
        make_evaluator: Callable[[Path, str], Evaluator] = Evaluator,
    ) -> None:
        """Starts the evaluator.

        Args:
            context: The job and the run's storage.
            spaces: Spaces of one observation and one action.
            network: The policy.
            tracker: Counts the evaluations.
            resumed: Whether ``tracker`` has the state of a checkpoint. The best policy in storage
                then belongs to this run.
            make_evaluator: Makes the evaluator from its folder and the directory of the best
                policy.

        Raises:
            BadConfiguration: There is no policy to evaluate.
        """
        job, spec = context.job, context.job.spec.evaluation
        assert spec is not None, "the job has spec.evaluation"
        if network is None:
            raise BadConfiguration(
                "spec.evaluation needs a policy: give one to world.run(policy), or leave it out"
            )
        self._spec, self._tracker = spec, tracker
        self._job, self._spaces, self._network = job, spaces, network
        self._seed = job.spec.seed if spec.seed is None else spec.seed
        self._num_envs = min(spec.episodes, job.spec.environment.num_envs)
        best = f"{context.storage}/{BEST}"
        if resumed:
            tracker.set_best(*_stored_best(best))
        self._evaluator = make_evaluator(Path(context.output) / FOLDER, best)
        # Repeat the evaluation that was in progress when the learner died.
        self._due = self._due_after_last()
        self._lost, self._not_kept = 0, ""
        self._started: tuple[int, float] | None = None  # step and time of the evaluation in progress
        self._last: Warning | None = None  # the last evaluation is awaited, or was given up

    def is_due(self, environment_steps: int) -> bool:
        """Returns whether an evaluation is due and the evaluator is idle."""
        return self._evaluator.idle and environment_steps >= self._due

    def start(self, counters: Progress, seconds: float) -> None:
        """Starts the evaluation of the current policy, after ``seconds`` of training.

        Raises Diverged if a parameter is NaN or infinite.
        """
        steps = counters.environment_steps
        check_finite(self._network, f"at step {steps:,}")
        best = self._tracker.status.best
        self._tracker.add_merged(max(0, steps - self._due) // self._spec.every_steps)
        self._due = self._next_multiple(steps)
        self._started = steps, time.monotonic()
        self._evaluator.start(
            Task(
                description=describe(self._job, *self._spaces, counters),
                weights=snapshot(self._network.state_dict()),
                episodes=self._spec.episodes,
                seed=evaluation_seed(self._seed, steps),
                num_envs=self._num_envs,
                seconds=seconds,
                to_beat=best.mean_return if best else None,
            )
        )

    def take(self) -> Numbers:
        """Processes the result of the evaluation, if it has ended since the last call.

        Returns the result for the curves, or no values. Raises UserCodeError or BadConfiguration
        like a sampler in the same environment.
        """
        # Count lost processes.
        for _ in range(self._evaluator.lost - self._lost):
            self._tracker.add_restart()
            self._lost += 1

        # Take the outcome. A skipped policy counts as merged with the next evaluation.
        outcome = self._evaluator.take()
        if outcome is None or outcome.task.void:
            return {}
        if outcome.error is not None:
            raise outcome.error
        self._not_kept = outcome.not_kept
        if outcome.answer is None or outcome.answer.result is None:
            self._tracker.add_merged(1)
            return {}

        # Add the result to the run.
        result = outcome.answer.result
        self._tracker.add(result, outcome.best_policy_uri)
        _LOG.info(
            "evaluation at step %d: mean return %s of %d episodes",
            *(result.environment_steps, result.mean_return, result.episodes),
        )
        return self._numbers(result)

    def rollback(self) -> None:
        """Voids the evaluation in progress, after the tracker was restored to an earlier state."""
        self._evaluator.void()
        self._due = self._due_after_last()

    def finish(self, counters: Progress, seconds: float, stopping: Callable[[], bool]) -> Iterator[Numbers]:
        """Completes the evaluation in progress and evaluates the last policy.

        Waits at most LAST_EVALUATION_SECONDS, which `warnings` reports. Yields results for the curves.
        """
        began = time.monotonic()
        while not stopping():
            # Process a result, and start the evaluation of the last policy.
            if numbers := self.take():
                yield numbers
            if self._evaluator.idle:
                if self._started is not None and self._started[0] == counters.environment_steps:
                    self._last = None
                    return
                self.start(counters, seconds)
            # Report the wait, and its end if it takes too long.
            waited = time.monotonic() - began
            if waited >= LAST_EVALUATION_SECONDS:
                self._last = _not_evaluated(counters)
                _LOG.warning("%s", self._last.message)
                return
            if self._last is None and waited >= PENDING_SECONDS:
                self._last = Warning(
                    reason="LastEvaluationPending",
                    message="training is complete; the run waits for the evaluation of the last policy, "
                    f"at most {LAST_EVALUATION_SECONDS:g} s",
                )
            time.sleep(_PERIOD)

    def warnings(self) -> Iterator[Warning]:
        """Yields warnings for the job's status. Thread-safe."""
        if self._evaluator.warning:
            yield Warning(reason="EvaluatorLost", message=self._evaluator.warning)
        if self._not_kept:
            yield Warning(reason="BestPolicyNotKept", message=self._not_kept)
        if (last := self._last) is not None:
            yield last
        started = self._started
        if started is not None and not self._evaluator.idle and time.monotonic() - started[1] > SLOW_SECONDS:
            yield Warning(
                reason="EvaluationSlow",
                message=f"the evaluation at step {started[0]:,} takes more than {SLOW_SECONDS:g} s: {ENDLESS_REMEDY}",
            )

    def close(self) -> None:
        """Ends the evaluator's process."""
        self._evaluator.close()

    def _due_after_last(self) -> int:
        last = self._tracker.status.last
        return self._next_multiple(last.environment_steps if last else 0)

    def _next_multiple(self, environment_steps: int) -> int:
        every = self._spec.every_steps
        return (environment_steps // every + 1) * every

    def _numbers(self, result: EvaluationResult) -> Numbers:
        status = self._tracker.status
        return {
            "evaluation/environmentSteps": result.environment_steps,
            "evaluation/return": result.mean_return,
            "evaluation/std": result.std_return,
            "evaluation/min": result.min_return,
            "evaluation/max": result.max_return,
            "evaluation/length": result.mean_length,
            "evaluation/best": status.best.mean_return if status.best else None,
            "evaluation/count": status.count,
            "evaluation/merged": status.merged,
            "evaluation/restarts": status.restarts,
        }


def _not_evaluated(counters: Progress) -> Warning:
    """Returns the warning that the evaluation of the last policy took too long."""
    training = "" if counters.episodes else ", and no episode of the training has ended"
    return Warning(
        reason="LastPolicyNotEvaluated",
        message=f"the last policy was not evaluated: its episodes did not end within "
        f"{LAST_EVALUATION_SECONDS:g} s{training}; {ENDLESS_REMEDY}",
    )


def _stored_best(uri: str) -> tuple[EvaluationResult | None, str | None]:
    """Returns the best policy's evaluation and URI, or None for both if it is missing or damaged."""
    storage = open_storage(uri)
    try:
        description = PolicyDescription.model_validate_json(
            storage.read("", DESCRIPTION_FILE), extra="ignore"
        )
    except (FileNotFoundError, NotADirectoryError):
        return None, None
    except ValidationError:
        _LOG.warning("%s/%s is damaged: the next evaluation replaces it", uri, DESCRIPTION_FILE)
        return None, None
    return description.evaluation, storage.uri().rstrip("/")
