"""An evaluator's answers, and the files that it writes for the best policy so far."""

from __future__ import annotations

from pathlib import Path

import pytest
from policies import PROGRESS, trained
from rltraining_trainer.evaluation.answer import answer
from rltraining_trainer.evaluation.messages import Answer, Order
from rltraining_trainer.policy import Policy, evaluate
from rltraining_trainer.policy.description import describe
from rltraining_trainer.policy.export import saved_description, saved_weights


def order(folder: Path, name: str = "discrete", to_beat: float | None = None) -> Order:
    """Returns an order to play a policy that has only weights and description, as a learner writes it."""
    network, job, spaces = trained(name)
    (folder / "weights.pt").write_bytes(saved_weights(network.state_dict()))
    (folder / "policy.json").write_bytes(saved_description(describe(job, *spaces, PROGRESS)))
    return Order(folder=str(folder), episodes=3, seed=7, num_envs=2, seconds=1.5, to_beat=to_beat)


def test_a_better_policy_is_completed_and_contains_its_evaluation(tmp_path: Path) -> None:
    played = answer(order(tmp_path, to_beat=1.0))
    assert (played.error, played.is_best) == ("", True)
    assert Answer.model_validate_json(played.model_dump_json()) == played
    assert sorted(path.name for path in tmp_path.iterdir()) == ["policy.json", "policy.ts", "weights.pt"]
    policy = Policy.load(str(tmp_path))
    assert policy.description.evaluation == played.result
    assert policy.description.program is not None
    expected = evaluate(policy, 3, seed=7, num_envs=2)
    result = played.result
    assert result is not None
    assert (result.environment_steps, result.seconds, result.episodes) == (1000, 1.5, 3)
    assert result.mean_return == pytest.approx(expected.mean, abs=1e-4)
    assert result.std_return == pytest.approx(expected.standard_deviation, abs=1e-4)
    assert (result.min_return, result.max_return) == (expected.returns.min(), expected.returns.max())
    assert result.mean_length == pytest.approx(result.mean_return, abs=0.1), (
        "each step of CartPole is worth 1"
    )


def test_a_policy_that_is_no_better_is_left_as_it_is(tmp_path: Path) -> None:
    played = answer(order(tmp_path, to_beat=500.0))
    assert not played.is_best
    assert sorted(path.name for path in tmp_path.iterdir()) == ["policy.json", "weights.pt"]


@pytest.mark.parametrize(
    ("environment", "error", "message"),
    [
        ("no_module:X-v0", "UserCodeError", "importing module 'no_module' raised ModuleNotFoundError"),
        ("NoPole-v1", "BadConfiguration", "there is no environment 'NoPole-v1'"),
    ],
)
def test_an_error_that_a_sampler_would_end_with_is_an_answer(
    tmp_path: Path, environment: str, error: str, message: str
) -> None:
    asked = order(tmp_path)
    description = tmp_path / "policy.json"
    description.write_text(description.read_text().replace("CartPole-v1", environment))
    played = answer(asked)
    assert (played.result, played.error) == (None, error)
    assert message in played.message
