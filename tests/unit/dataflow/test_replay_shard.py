"""A shard answers requests, rejects invalid ones, and accepts each insertion exactly once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from replay_world import COLUMNS
from rltraining_trainer.dataflow.replay import LocalPeer, ReplayBuffer, ReplayShard
from rltraining_trainer.transport import DeferredReply, RemoteError
from torch import Tensor


def make(capacity: int = 8, size: int = 0) -> ReplayShard:
    buffer = ReplayBuffer(capacity, COLUMNS, kind="Prioritized", priority_exponent=0.5, seed=1)
    shard = ReplayShard(buffer)
    shard.add(items(size), torch.ones(size))
    return shard


def items(count: int) -> dict[str, Tensor]:
    return {"value": torch.arange(count, dtype=torch.float64)}


def sample(shard: ReplayShard, count: int, update: Tensor | None = None, smallest: bool = False) -> Any:
    answer = shard.sample("learner", {"count": count, "update": update, "smallest": smallest})
    shard.check_valid()
    return answer


def insertion(sequence: int, count: int = 2, incarnation: str = "a") -> dict[str, Any]:
    return {
        "incarnation": incarnation,
        "sequence": sequence,
        "items": items(count),
        "priorities": torch.ones(count),
    }


def test_a_sample_brings_the_items_and_where_they_lie() -> None:
    answer = sample(make(capacity=4, size=6), 16)
    slots, versions, probabilities, ages = answer["drawn"]

    assert answer["items"]["value"].tolist() == versions.tolist(), "item v was the insertion number v"
    assert set(versions.tolist()) == {2.0, 3.0, 4.0, 5.0}
    assert (slots == versions % 4).all()
    assert (probabilities == 0.25).all()
    assert (ages == 6 - versions).all()
    assert (answer["mass"], answer["counts"], answer["updated"]) == (4.0, [6, 2, 16, 0, 0], [0, 0])
    assert "smallest" not in answer


def test_priorities_that_come_along_count_for_the_draw() -> None:
    shard = make(size=2)
    shard.add(items(6), torch.ones(6))  # the ring is full: the next insertion evicts
    slots = torch.arange(8.0, dtype=torch.float64)
    answer = sample(shard, 32, torch.stack([slots, slots, torch.tensor([0.0] * 7 + [16.0])]), smallest=True)

    assert set(answer["drawn"][1].tolist()) == {7.0}
    assert (answer["mass"], answer["updated"], answer["smallest"]) == (4.0, [8, 0], 4.0)


def test_an_empty_shard_answers_with_nothing() -> None:
    for shard in (make(), make(size=1)):
        shard.update("learner", {"update": torch.zeros(3, 1, dtype=torch.float64)})  # a priority of 0
        answer = sample(shard, 8)
        assert answer["items"] == {}
        assert answer["drawn"].shape == (4, 0)


def test_it_describes_itself() -> None:
    shard = make(size=3)
    described = shard.describe()

    assert described == {
        "incarnation": shard.incarnation,
        "mass": 3.0,
        "counts": [3, 0, 0, 0, 0],
        "resumed": [0, 0, 0, 0, 0],
    }
    assert shard.stats("learner", None) == {"mass": 3.0, "counts": [3, 0, 0, 0, 0], "updated": [0, 0]}
    assert shard.stats("learner", {"smallest": True})["smallest"] == 1.0  # type: ignore[index, call-overload]
    assert make().incarnation != make().incarnation


@pytest.mark.parametrize(
    ("service", "payload", "field"),
    [
        ("sample", None, "count must be a int, not NoneType"),
        ("sample", {"count": "8", "update": None, "smallest": False}, "count must be a int, not str"),
        ("sample", {"count": 8, "update": [1], "smallest": False}, "update must be a Tensor, not list"),
        ("sample", {"count": 8, "update": torch.zeros(3, 2), "smallest": False}, r"float64 \[3, k\]"),
        ("update", {"update": None}, "update must be a Tensor"),
        (
            "update",
            {"update": torch.zeros(2, 2, dtype=torch.float64)},
            r"float64 \[3, k\], not torch.float64 \[2, 2\]",
        ),
        ("insert", {**insertion(1), "incarnation": 7}, "incarnation must be a str"),
        ("insert", {**insertion(1), "sequence": None}, "sequence must be a int"),
        ("insert", {**insertion(1), "items": torch.zeros(2)}, "items must be a dict"),
        ("insert", {**insertion(1), "items": {"value": [1.0]}}, "value must be a Tensor"),
        ("insert", {**insertion(1), "priorities": 1.0}, "priorities must be a Tensor"),
    ],
)
def test_what_is_no_question_is_refused(service: str, payload: Any, field: str) -> None:
    shard = make(size=2)
    with pytest.raises(TypeError, match=field):
        shard.services[service]("stranger", payload)
    shard.check_valid()


def test_items_that_are_inserted_without_priorities_have_the_largest_priority() -> None:
    shard = make()
    shard.services["insert"]("sampler", insertion(1) | {"priorities": torch.tensor([4.0, 9.0])})
    shard.services["insert"]("sampler", insertion(2) | {"priorities": None})
    assert sample(shard, 1)["mass"] == 2.0 + 3.0 + 3.0 + 3.0  # square roots


def test_a_repeated_insertion_is_taken_once() -> None:
    shard = make()
    for payload in (insertion(1), insertion(2), insertion(2), insertion(1), insertion(1, incarnation="b")):
        shard.insert("sampler-0", payload)
    shard.insert("sampler-1", insertion(1))

    assert shard.counts.inserted == 8


def test_an_insertion_that_is_refused_may_be_repeated() -> None:
    shard = make()
    wrong = {**insertion(1), "priorities": torch.tensor([1.0, float("nan")])}
    with pytest.raises(ValueError, match="finite"):
        shard.insert("sampler-0", wrong)
    shard.insert("sampler-0", insertion(1))

    assert shard.counts.inserted == 2


def test_a_full_shard_holds_senders_back_until_its_limit_grows() -> None:
    shard = make()
    shard.set_limit(3)

    assert not isinstance(shard.insert("sampler-0", insertion(1)), DeferredReply)
    assert shard.has_room
    deferred = shard.insert("sampler-0", insertion(2))
    assert isinstance(deferred, DeferredReply)
    assert isinstance(shard.insert("sampler-0", insertion(2)), DeferredReply), "also for a repeated request"
    assert shard.counts.inserted == 4
    assert not shard.has_room

    answers: list[Any] = []
    deferred.attach(answers.append)
    shard.set_limit(4)
    assert not answers
    shard.set_limit(5)
    assert answers[0][0] == "ok"
    shard.check_valid()


def test_a_restored_shard_goes_on_and_says_with_what() -> None:
    shard = make(capacity=4, size=6)
    shard.insert("sampler-0", insertion(1))
    again = make(capacity=4)
    again.set_state(shard.get_state())
    again.insert("sampler-0", insertion(1))
    again.add(items(1), torch.ones(1))

    assert again.describe()["resumed"] == [8, 4, 0, 0, 0]
    assert again.counts.inserted == 9
    assert again.incarnation != shard.incarnation
    again.check_valid()


def test_a_local_peer_calls_as_a_transport_would() -> None:
    shard = make(size=2)
    peer = LocalPeer(shard)

    assert peer.call("stats", None).result() == shard.stats("", None)
    with pytest.raises(RemoteError, match="sample: TypeError: the field count"):
        peer.call("sample", {}).result()
    shard.set_limit(0)
    held = peer.call("insert", insertion(1))
    assert not held.done()
    shard.set_limit(None)
    assert held.done()
