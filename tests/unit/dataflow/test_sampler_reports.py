"""Sampler reports are counted once, and answered when the samplers may continue."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from rltraining_trainer.dataflow import WANTS_NONE, ModelServer
from rltraining_trainer.dataflow.reports import HOLD_SECONDS, SamplerReports
from rltraining_trainer.transport import DeferredReply


class World:
    """A learner with limits and a clock that the test sets."""

    def __init__(self, *, ignores_earlier: bool = False) -> None:
        self.now = 100.0
        self.limit: int | None = None
        self.shards: list[tuple[str, dict[str, Any], bool]] = []
        self.models = ModelServer()
        self.models.publish(torch.zeros(3))
        self.reports = SamplerReports(
            self.models,
            announce=lambda *announced: self.shards.append(announced),
            limit=lambda keeper: self.limit,
            samplers=lambda: 4,
            ignores_earlier=ignores_earlier,
            clock=lambda: self.now,
        )

    def report(self, sender: str = "sampler-0", **changed: Any) -> Any:
        payload: dict[str, Any] = {
            "incarnation": "a",
            "sequence": 1,
            "version": 1,
            "steps": 10,
            "episodes": 2,
            "returns": torch.tensor([3.0]),
            "shard": {"counts": [7, 0, 0, 0, 0]},
        }
        return self.reports.report(sender, payload | changed)

    def steps(self) -> int:
        return sum(news.steps for news in self.reports.take())


@pytest.fixture
def world() -> World:
    return World()


def answer(deferred: DeferredReply) -> Any:
    """Returns a deferred answer, or None while it is owed."""
    given: list[Any] = []
    deferred.attach(lambda answered: given.append(answered[1]))
    return given[0] if given else None


def test_counts_are_of_a_samplers_life_and_news_is_what_was_added(world: World) -> None:
    world.report(steps=10, episodes=2)
    world.report(sequence=2, steps=25, episodes=3, returns=torch.tensor([4.0, 5.0]))

    first, second = world.reports.take()
    assert (first.steps, first.episodes, first.returns.tolist()) == (10, 2, [3.0])
    assert (second.steps, second.episodes, second.returns.tolist()) == (15, 1, [4.0, 5.0])
    assert world.reports.take() == []


@pytest.mark.parametrize(
    ("reports", "steps"),
    [
        ([("a", 1, 10), ("a", 1, 10)], 10),
        ([("a", 1, 10), ("a", 3, 40)], 40),
        ([("a", 1, 10), ("b", 1, 4)], 14),
    ],
    ids=["the answer was lost", "a report was lost", "the sampler was restarted"],
)
def test_steps_are_counted_once(world: World, reports: list[tuple[str, int, int]], steps: int) -> None:
    for incarnation, sequence, count in reports:
        world.report(incarnation=incarnation, sequence=sequence, steps=count)
    world.report("sampler-1", steps=100)

    assert world.steps() == steps + 100


def test_a_restarted_learner_counts_what_was_done_since_its_checkpoint(world: World) -> None:
    world.report(steps=10)
    state = world.reports.get_state()
    world.report(sequence=2, steps=30)

    restarted = World()
    restarted.reports.set_state(state)
    restarted.report(sequence=3, steps=35)
    restarted.report(sequence=4, steps=36)

    news = [(one.steps, one.late) for one in restarted.reports.take()]
    assert news == [(10, False), (25, True), (1, False)], "the first was not taken before the checkpoint"


def test_for_a_learner_that_begins_anew_only_what_is_done_for_it_counts() -> None:
    ignores_earlier = World(ignores_earlier=True)
    ignores_earlier.report(sequence=30, steps=1000, episodes=50)
    assert ignores_earlier.reports.take() == []
    ignores_earlier.report(sequence=31, steps=1010, episodes=52)
    ignores_earlier.report("sampler-1", sequence=1, steps=5)
    assert ignores_earlier.steps() == 15


def test_a_learner_with_a_checkpoint_does_not_ignore_earlier_steps(world: World) -> None:
    restarted = World(ignores_earlier=True)
    restarted.reports.set_state(world.reports.get_state())
    restarted.report(sequence=30, steps=1000)
    assert restarted.steps() == 1000


def test_the_answer_brings_newer_parameters_and_how_many_samplers_there_are(world: World) -> None:
    told = world.report(version=0)
    assert (told["version"], told["done"], told["samplers"], told["limit"]) == (1, False, 4, None)
    assert told["parameters"].shape == (3,)
    assert world.report(sequence=2, version=1)["parameters"] is None


@pytest.mark.parametrize(("version", "lag"), [(0, 2), (2, 0), (WANTS_NONE, None)])
def test_lag_is_by_how_many_versions_the_parameters_are_old(
    world: World, version: int, lag: int | None
) -> None:
    """Pods that only keep a shard, and learners other than the first, have no parameters."""
    world.models.publish(torch.zeros(3))
    world.report(version=version)

    assert world.reports.take()[0].lag == lag


def test_a_shard_is_announced_and_once_that_it_worked_for_another_learner(world: World) -> None:
    world.report(sequence=7, shard={"counts": [5]})
    world.report(sequence=8, shard={"counts": [6]})
    world.report("sampler-1", shard=None)

    assert world.shards == [("sampler-0", {"counts": [5]}, True), ("sampler-0", {"counts": [6]}, False)]


def test_whoever_may_not_insert_waits_until_it_may(world: World) -> None:
    world.limit = 7
    deferred = world.report()
    world.reports.release()
    assert answer(deferred) is None

    world.limit = 8
    world.models.publish(torch.ones(3))
    world.reports.release()

    told = answer(deferred)
    assert told["limit"] == 8
    assert torch.equal(told["parameters"], torch.ones(3)), "the newest then"


def test_many_who_wait_cost_little_while_none_may_go_on(world: World) -> None:
    asked: list[str] = []

    def limit(keeper: str) -> int:
        asked.append(keeper)
        return 7

    world.reports._limit = limit
    names = [f"sampler-{number}" for number in range(100)]
    waiting = [world.report(name) for name in names]
    assert asked == names, "a new request does not check all waiting ones again"
    asked.clear()
    for _ in range(50):
        world.reports.release()
    assert sorted(asked) == sorted(names), "each has its turn"

    world.limit = 8
    world.reports._limit = lambda keeper: 8
    world.reports.release()
    assert all(answer(deferred) is not None for deferred in waiting)


def test_whoever_keeps_no_shard_does_not_wait_here(world: World) -> None:
    world.limit = 0

    assert world.report(shard=None)["limit"] is None


def test_nobody_waits_for_long(world: World) -> None:
    world.limit = 7
    deferred = world.report()
    world.now += HOLD_SECONDS
    world.reports.release()

    assert answer(deferred)["limit"] == 7, "it may not insert more, and asks again"


def test_at_the_end_everybody_is_told(world: World) -> None:
    world.limit = 7
    deferred = world.report()
    world.reports.finish()

    assert answer(deferred)["done"]
    assert world.report(sequence=2)["done"]
    assert world.reports.pull("sampler-3", {"version": 0})["done"]


@pytest.mark.parametrize("waited", [False, True])
def test_whoever_comes_to_wait_just_when_the_run_ends_is_told(world: World, waited: bool) -> None:
    world.limit = 7
    deferred = world.report() if waited else None

    def ends_meanwhile(keeper: str) -> int:
        world.reports._limit = lambda keeper: 7
        world.reports.finish()
        return 7

    world.reports._limit = ends_meanwhile
    world.reports.release()
    told = answer(deferred) if deferred is not None else world.report()

    assert told["done"]


@pytest.mark.parametrize("name", ["incarnation", "sequence", "version", "steps", "episodes", "returns"])
def test_what_is_no_report_is_refused_by_name(world: World, name: str) -> None:
    with pytest.raises(TypeError, match=f"the field {name} must be"):
        world.report(**{name: None})
