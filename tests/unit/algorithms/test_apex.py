"""Learners with a replay: in-step updates, a moving target, an end on NaN, and exact resumption."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from apex_learners import (
    OBSERVATION,
    WEIGHTS,
    adam,
    batch_for,
    collector_and_learner,
    ddpg,
    dqn,
    sac,
    split,
    td3,
)
from bandit import Bandit
from gymnasium.vector import SyncVectorEnv
from rltraining_api.algorithms import DdpgApex, DqnApex, Sac, Td3
from rltraining_api.environment import Environment, Normalize
from rltraining_trainer.algorithms.apex import learn
from rltraining_trainer.algorithms.apex_learner import ApexLearner
from rltraining_trainer.checkpoint import restore_rng, rng_state, snapshot
from rltraining_trainer.dataflow.reduce import Reduce
from rltraining_trainer.dataflow.replay import Column
from rltraining_trainer.errors import Diverged
from rltraining_trainer.group import GroupChanged
from through_a_file import restore
from torch import Tensor

each = pytest.mark.parametrize("make", [dqn, ddpg, sac, td3])
both = pytest.mark.parametrize("make", [dqn, ddpg])
"""Learners without random updates."""
both_algorithms = pytest.mark.parametrize(
    ("algorithm", "game"), [(DqnApex, "CartPole-v1"), (DdpgApex, "Pendulum-v1")]
)
Make = Callable[..., ApexLearner]


@both
def test_a_checkpoint_resumes_bit_for_bit(make: Make) -> None:
    settings = {"target_update_period": 2, "target_update_rate": 0.5}
    straight, resumed = make(**settings), make(**settings)
    batches = [batch_for(straight, seed) for seed in range(6)]
    for batch in batches[:3]:
        straight.step(batch, WEIGHTS, 3.0)
    restore(resumed, straight)
    for batch in batches[3:]:
        ours = straight.step(batch, WEIGHTS, 3.0)
        theirs = resumed.step(batch, WEIGHTS, 3.0)
        assert torch.equal(ours[0], theirs[0])

    assert torch.equal(straight.parameters, resumed.parameters)
    assert straight.updates == resumed.updates == 6
    views = torch.cat([parameter.detach().reshape(-1) for parameter in resumed.network.parameters()])
    assert torch.equal(views, resumed.parameters), "the parameters are still views of the flat tensor"


@pytest.mark.parametrize("make", [sac, td3])
def test_a_checkpoint_resumes_bit_for_bit_with_the_noise(make: Make) -> None:
    straight = make()
    batches = [batch_for(straight, seed) for seed in range(6)]
    for batch in batches[:3]:
        straight.step(batch, WEIGHTS, 3.0)
    resumed = make()
    restore(resumed, straight)

    torch.manual_seed(11)
    state = rng_state()
    ours = [straight.step(batch, WEIGHTS, 3.0)[0] for batch in batches[3:]]
    torch.manual_seed(12)
    restore_rng(state)
    theirs = [resumed.step(batch, WEIGHTS, 3.0)[0] for batch in batches[3:]]

    assert torch.equal(torch.stack(ours), torch.stack(theirs))
    left, right = straight.get_state(), resumed.get_state()
    assert torch.equal(left["parameters"], right["parameters"])
    assert torch.equal(left["target"], right["target"])
    assert left["updates"] == right["updates"] == 6
    for one, other in zip(left["optimizers"], right["optimizers"], strict=True):
        assert one["steps"] == other["steps"]
        assert torch.equal(one["mean"], other["mean"])
        assert torch.equal(one["square"], other["square"])


@pytest.mark.parametrize(("ours", "theirs"), [(dqn, ddpg), (ddpg, dqn)])
def test_the_state_of_another_network_is_refused(ours: Make, theirs: Make) -> None:
    with pytest.raises(ValueError, match=r"the network has \d+ parameters"):
        ours().set_state(snapshot(theirs().get_state()))


@each
def test_the_target_moves_by_its_rate_after_every_period(make: Make) -> None:
    learner = make(target_update_period=3, target_update_rate=0.25)
    target = learner.get_state()["target"].clone()
    assert torch.equal(target, learner.parameters), "it begins as a copy"

    for update in range(1, 8):
        learner.step(batch_for(learner, update))
        if update % 3 == 0:
            target = target + 0.25 * (learner.parameters.detach() - target)
        assert torch.allclose(learner.get_state()["target"], target, atol=1e-7), f"update {update}"


@each
def test_the_target_network_has_no_memory_for_gradients(make: Make) -> None:
    learner = make()
    learner.step(batch_for(learner))

    assert all(parameter.grad is None for parameter in learner._target.parameters())


def sum_with_another(make: Make, *args: object) -> Reduce:
    """Returns a reduce over a learner and another learner, which steps with `args`."""
    others: list[tuple[Tensor, float]] = []

    def record(gradient: Tensor, count: float) -> float:
        others.append((gradient.clone(), count))
        return 0.0

    def reduce(gradient: Tensor, count: float) -> float:
        gradient.add_(others[0][0])
        return count + others[0][1]

    make().step(*args, record)  # type: ignore[arg-type]
    return reduce


@both
def test_two_learners_with_half_a_batch_each_are_one_with_all_of_it(make: Make) -> None:
    whole, half = make(), make()
    batch = batch_for(whole)
    (first, second), weights = split(batch, 5), (WEIGHTS[:5], WEIGHTS[5:])
    largest = WEIGHTS.max().item()

    priorities, _ = whole.step(batch, WEIGHTS, largest)
    ours, _ = half.step(first, weights[0], largest, sum_with_another(make, second, weights[1], largest))

    assert torch.allclose(whole.parameters, half.parameters, atol=1e-6)
    assert torch.allclose(whole.parameters.grad, half.parameters.grad, atol=1e-6)
    assert torch.allclose(priorities[:5], ours, atol=1e-6)


@each
def test_a_learner_without_data_follows_the_others(make: Make) -> None:
    leader, follower = make(), make()
    batch = batch_for(leader)

    leader.step(batch)
    priorities, _ = follower.step(None, None, 1.0, sum_with_another(make, batch, None, 1.0))

    assert torch.equal(leader.parameters, follower.parameters)
    assert (len(priorities), follower.updates) == (0, 1)


@each
def test_an_update_without_any_data_changes_nothing(make: Make) -> None:
    learner = make(target_update_rate=0.5, target_update_period=1)
    learner.step(batch_for(learner))
    before = snapshot(learner.get_state())

    priorities, terms = learner.step(None)

    assert (len(priorities), terms) == (0, {})
    assert learner.updates == 1
    assert torch.equal(learner.parameters, before["parameters"])
    assert torch.equal(learner.get_state()["target"], before["target"])


@each
def test_a_gradient_is_clipped_before_it_is_used(make: Make) -> None:
    learner = make(gradient_clip=0.01)

    _, terms = learner.step(batch_for(learner))

    norms = {name: value.item() for name, value in terms.items() if name.endswith("gradient_norm")}
    assert all(norm > 0.05 for norm in norms.values()), "reported as they were before"
    assert learner.parameters.grad.norm().item() == pytest.approx(0.01 * len(norms) ** 0.5, rel=1e-3)


@pytest.mark.parametrize(
    ("algorithm", "game"),
    [(DqnApex, "CartPole-v1"), (DdpgApex, "Pendulum-v1"), (Sac, "Pendulum-v1"), (Td3, "Pendulum-v1")],
)
def test_network_and_target_have_the_statistics_of_collected_observations(
    algorithm: type[DqnApex | DdpgApex | Sac | Td3], game: str
) -> None:
    collector, learner = collector_and_learner(
        algorithm(n_step=1), gym.make_vec(game, 3), length=5, normalize=Normalize(observations=True)
    )
    first, second = collector.collect(), collector.collect()

    learner.merge_moments([first.moments])

    # With 1-step transitions the last row of a block is in the next block.
    rows = torch.cat((first.transitions["observation"], second.transitions["observation"]))
    seen = rows[: 5 * 3]
    for normalizer in (learner.network.normalizer, learner._target.normalizer):
        assert normalizer is not None
        assert normalizer.count.item() == len(seen)
        assert torch.allclose(normalizer.mean, seen.mean(0), atol=1e-6)
        assert torch.allclose(normalizer.variance, seen.var(0, correction=0), atol=1e-6)


@pytest.mark.parametrize("n_step", [1, 3])
@both_algorithms
def test_priorities_of_the_actor_are_those_of_the_learner_before_its_update(
    algorithm: type[DqnApex | DdpgApex], game: str, n_step: int
) -> None:
    """Holds for equal parameters and a target network that is a copy."""
    environments = gym.make_vec(game, 4, max_episode_steps=20)
    collector, learner = collector_and_learner(algorithm(n_step=n_step), environments, length=50)
    block = collector.collect()

    priorities, _ = learner.step(block.transitions)

    assert len(priorities) > 150
    assert torch.allclose(block.priorities, priorities, rtol=1e-4, atol=1e-4)
    assert not torch.equal(priorities, learner.step(block.transitions)[0]), "the update changed the values"


def test_a_bandit_is_learnt_by_dqn() -> None:
    settings = DqnApex(optimizer=adam(), learning_rate=0.02, exploration_epsilon=1.0)
    environments = SyncVectorEnv([lambda: Bandit(continuous=False)] * 16)
    collector, learner = collector_and_learner(settings, environments, length=16)
    for _ in range(30):
        batch = collector.collect().transitions
        for _ in range(4):
            learner.step(batch)

    observations = torch.tensor([[-1.0], [1.0]])
    chosen = collector.actor._actions.mode(learner.network.policy(observations, ())[0])
    assert collector.actor.to_environment(chosen.detach()).tolist() == [3, 4]


def test_a_bandit_is_learnt_by_sac_from_the_newest_transitions() -> None:
    settings = Sac(learning_rate=1e-2, initial_temperature=0.1, target_entropy=-2.0, target_update_rate=0.05)
    environments = SyncVectorEnv([partial(Bandit, continuous=True)] * 16)
    collector, learner = collector_and_learner(settings, environments, length=16)
    memory: dict[str, Tensor] = {}
    for block in range(40):
        collector.actor.warming_up = block < 10
        for name, column in collector.collect().transitions.items():
            assert isinstance(column, Tensor)
            memory[name] = torch.cat([memory.get(name, column[:0]), column])[-1000:]
        for _ in range(10):
            rows = torch.randint(len(memory["reward"]), (128,))
            learner.step({name: column[rows] for name, column in memory.items()})  # type: ignore[arg-type]

    with torch.no_grad():
        parameters, _ = learner.network.policy(torch.tensor([[-1.0], [1.0]]), ())
        greedy = collector.actor.to_environment(collector.actor._actions.mode(parameters))
    np.testing.assert_allclose(greedy, [[1.0], [3.0]], atol=0.15)


@each
@pytest.mark.parametrize(
    ("column", "bad", "name"),
    [
        ("observation", math.nan, "an observation"),
        ("next_observation", math.inf, "an observation"),
        ("reward", math.inf, "a reward"),
    ],
)
def test_nan_from_the_environment_ends_the_run_and_leaves_the_parameters(
    make: Make, column: str, bad: float, name: str
) -> None:
    learner = make()
    learner.step(batch_for(learner))
    before = snapshot(learner.get_state())
    batch = batch_for(learner)
    batch["discount"][:] = 0.9
    batch[column][3] = bad  # type: ignore[literal-required]

    with pytest.raises(Diverged) as caught:
        learner.step(batch)

    assert str(caught.value) == (
        f"NaN in the loss at update 1: the environment gave {name} that is NaN or infinite"
    )
    assert torch.equal(learner.parameters, before["parameters"])


@pytest.mark.parametrize(
    ("make", "remedy"),
    [
        (
            partial(dqn, loss="SquaredError"),
            r"lower spec\.algorithm\.dqnApex\.learningRate or gradientClip, or clip rewards with rewardClip",
        ),
        (
            ddpg,
            r"lower spec\.algorithm\.ddpgApex\.actorLearningRate, criticLearningRate or gradientClip, or .*",
        ),
        (sac, r"lower spec\.algorithm\.sac\.learningRate or gradientClip, or .*"),
        (td3, r"lower spec\.algorithm\.td3\.learningRate or gradientClip, or .*"),
    ],
)
def test_a_loss_that_explodes_by_itself_ends_the_run_with_a_remedy(make: Make, remedy: str) -> None:
    learner = make()
    with torch.no_grad():
        learner.parameters.mul_(1e30)
    before = learner.parameters.detach().clone()

    with pytest.raises(Diverged, match=rf"^NaN in the loss at update 0 \(.*\): {remedy}$"):
        learner.step(batch_for(learner))

    assert torch.equal(learner.parameters, before)


@pytest.mark.parametrize("step", ["merge_moments", "maximum", "reduce"])
def test_a_batch_is_discarded_if_a_learner_is_lost_at_any_step_of_the_update(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Otherwise its samples would count as outstanding for the rest of the run."""

    def lose(*arguments: Any) -> Any:
        raise GroupChanged("one died")

    learner, discarded, updates = dqn(), list[Any](), list[Any]()
    run = SimpleNamespace(
        take_moments=list,
        maximum=lose if step == "maximum" else lambda value: value,
        train=lambda sample, update: updates.append(update),
    )
    replay = SimpleNamespace(sample=None, discard=discarded.append)
    world: Any = SimpleNamespace(
        settings=SimpleNamespace(replay=None, batch_size=len(WEIGHTS)),
        spec=SimpleNamespace(reproducible=None, environment=Environment(id="Bandit-v0")),
        spaces=(OBSERVATION, None),
        replay=lambda *arguments, **options: replay,
        run=lambda algorithm: run,
    )
    learn(world, learner, columns={"reward": Column((), torch.float32)})
    if step == "merge_moments":
        monkeypatch.setattr(learner, "merge_moments", lose)
    batch: Any = SimpleNamespace(items=batch_for(learner, 0), weights=WEIGHTS, largest_weight=1.0)
    with pytest.raises(GroupChanged):
        updates[0](batch, lose if step == "reduce" else lambda values, count: count)
    assert discarded == [batch]
