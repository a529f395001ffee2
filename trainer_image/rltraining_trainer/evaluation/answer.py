"""Carries out an order: plays the policy and completes its files if it is the best so far."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from rltraining_api.evaluation import EvaluationResult

from rltraining_trainer.errors import TrainerError, UserCodeError
from rltraining_trainer.evaluation.messages import Answer, Order
from rltraining_trainer.policy import Evaluation, Policy, evaluate
from rltraining_trainer.policy.export import policy_files


def answer(order: Order) -> Answer:
    """Plays the policy in ``order.folder``. A TrainerError is returned, since it ends the job."""
    # Play the policy.
    try:
        policy = Policy.load(order.folder, trust_code=True)
        played = evaluate(policy, order.episodes, seed=order.seed, num_envs=order.num_envs)
    except TrainerError as error:
        kind = "UserCodeError" if isinstance(error, UserCodeError) else "BadConfiguration"
        return Answer(error=kind, message=str(error))
    result = result_of(played, policy.description.progress.environment_steps, order.seconds)
    is_best = result.mean_return is not None and (order.to_beat is None or result.mean_return > order.to_beat)
    if is_best:
        # Complete the files of the best policy: its result and its program.
        policy.description = policy.description.model_copy(update={"evaluation": result})
        for name, content in policy_files(policy).items():
            Path(order.folder, name).write_bytes(content)
    return Answer(result=result, is_best=is_best)


def result_of(played: Evaluation, environment_steps: int, seconds: float) -> EvaluationResult:
    """Summarizes episodes of the policy after ``environment_steps`` and ``seconds`` of training."""
    returns, lengths = played.returns, np.array([episode.length for episode in played.episodes])
    return EvaluationResult(
        environment_steps=environment_steps,
        seconds=round(seconds, 2),
        episodes=len(played.episodes),
        mean_return=round(played.mean, 4),
        std_return=round(played.standard_deviation, 4),
        min_return=round(float(returns.min()), 4),
        max_return=round(float(returns.max()), 4),
        mean_length=round(float(lengths.mean()), 1),
        time=datetime.now(UTC),
    )
