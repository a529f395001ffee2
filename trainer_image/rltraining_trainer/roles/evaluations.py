"""Evaluation while training goes on: when the first learner takes a policy, and what it does with the results."""

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
"""Policies on their way to the evaluator, below the output folder."""
BEST = "policy/best"
"""The best policy, in the run's storage."""
LAST_EVALUATION_SECONDS = 60.0
"""For which the end of a run waits for the evaluation of the last policy."""
SLOW_SECONDS = 600.0
"""After which an evaluation that delays the next one is worth a warning."""
_PERIOD = 0.05


class Evaluations:
    """Takes a policy each `everySteps` environment steps, unless the evaluator is busy. Then the newest policy is taken as
    soon as it is not. No method blocks, except for `finish` and `close`."""

    def __init__(
        self,
        context: Context,
        of: tuple[spaces.Space, spaces.Space],
        network: PolicyNetwork | None,
        tracker: EvaluationTracker,
        *,
        resumed: bool,
        make_evaluator: Callable[[Path, str], Evaluator] = Evaluator,
    ) -> None:
        """``resumed``: ``tracker`` has the state of a checkpoint, and the best policy in storage is of this run.

        Raises BadConfiguration: there is no policy to evaluate.
        """
        job, spec = context.job, context.job.spec.evaluation
        assert spec is not None, "the job is to be evaluated"
        if network is None:
            raise BadConfiguration(
                "spec.evaluation needs a policy: give one to world.run(policy), or leave it out"
            )
        self._spec, self._tracker = spec, tracker
        self._job, self._spaces, self._network = job, of, network
        self._seed = job.spec.seed if spec.seed is None else spec.seed
        self._num_envs = min(spec.episodes, job.spec.environment.num_envs)
        best = f"{context.storage}/{BEST}"
        if resumed:
            tracker.set_best(*_stored_best(best))
        self._evaluator = make_evaluator(Path(context.output) / FOLDER, best)
        # What was being evaluated when a learner died is evaluated again.
        last = tracker.status.last
        self._due = self._next_multiple(last.environment_steps if last else 0)
        self._lost, self._not_kept = 0, ""
        self._started: tuple[int, float] | None = None  # step and time of the evaluation in progress

    def is_due(self, environment_steps: int) -> bool:
        """Whether a policy is to be taken now."""
        return self._evaluator.idle and environment_steps >= self._due

    def start(self, counters: Progress, seconds: float) -> None:
        """Takes the policy as it is now. ``seconds`` of training. Raises Diverged: it is NaN or infinite somewhere."""
        steps = counters.environment_steps
        check_finite(self._network, f"at step {steps}")
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
        """Takes over the result that has come since the last call. Returns it for the curves; empty without one.

        Raises UserCodeError or BadConfiguration, as a sampler in the same environment would.
        """
        for _ in range(self._evaluator.lost - self._lost):
            self._tracker.add_restart()
            self._lost += 1
        outcome = self._evaluator.take()
        if outcome is None or outcome.task.void:
            return {}
        if outcome.error is not None:
            raise outcome.error
        self._not_kept = outcome.not_kept
        if outcome.answer is None or outcome.answer.result is None:
            self._tracker.add_merged(1)
            return {}
        result = outcome.answer.result
        self._tracker.add(result, outcome.best_policy_uri)
        _LOG.info(
            "evaluation at step %d: mean return %s of %d episodes",
            *(result.environment_steps, result.mean_return, result.episodes),
        )
        return self._numbers(result)

    def go_back(self) -> None:
        """The tracker has the state of an earlier moment: what is evaluated now is void."""
        self._evaluator.void()
        last = self._tracker.status.last
        self._due = self._next_multiple(last.environment_steps if last else 0)

    def finish(self, counters: Progress, seconds: float, stopping: Callable[[], bool]) -> Iterator[Numbers]:
        """Waits for the evaluation in progress, then for that of the last policy: together at most
        LAST_EVALUATION_SECONDS. Yields results for the curves."""
        deadline = time.monotonic() + LAST_EVALUATION_SECONDS
        while not stopping() and time.monotonic() < deadline:
            if numbers := self.take():
                yield numbers
            if self._evaluator.idle:
                if self._started is not None and self._started[0] == counters.environment_steps:
                    return
                self.start(counters, seconds)
            time.sleep(_PERIOD)
        _LOG.warning("the last policy was not evaluated within %g s", LAST_EVALUATION_SECONDS)

    def warnings(self) -> Iterator[Warning]:
        """Yields what users should know. Called from the HTTP server's threads too."""
        if self._evaluator.trouble:
            yield Warning(reason="EvaluatorLost", message=self._evaluator.trouble)
        if self._not_kept:
            yield Warning(reason="BestPolicyNotKept", message=self._not_kept)
        started = self._started
        if started is not None and not self._evaluator.idle and time.monotonic() - started[1] > SLOW_SECONDS:
            yield Warning(
                reason="EvaluationSlow",
                message=f"the evaluation at step {started[0]} takes more than {SLOW_SECONDS:g} s: episodes without an end "
                "need environment.maxEpisodeSteps; fewer evaluation.episodes take less time",
            )

    def close(self) -> None:
        """Ends the evaluator's process."""
        self._evaluator.close()

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


def _stored_best(uri: str) -> tuple[EvaluationResult | None, str | None]:
    """Reads what is known of the best policy. None without one, or if its description is damaged."""
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
