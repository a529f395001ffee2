"""A group of one: no process group, no thread, and the same rounds."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest
import torch
from rltraining_trainer.group import GroupChanged, GroupDecision, LearnerGroup, SingleLearnerGroup, Timeouts
from rltraining_trainer.group.rendezvous import Candidate
from rltraining_trainer.transport import Endpoint
from service_answers import answers_of


def make_group(index: int, endpoint: Endpoint, **options: Any) -> LearnerGroup:
    """Returns one of three learners; no other learner has a newer state."""

    def set_state(state: dict[str, Any]) -> None:
        raise AssertionError("its own state is the newest")

    return LearnerGroup(
        index,
        3,
        endpoint=endpoint,
        first_learner="http://127.0.0.1:1",
        token="the token",
        device=torch.device("cpu"),
        updates=lambda: 0,
        get_state=dict,
        set_state=set_state,
        **options,
    )


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Iterator[LearnerGroup]:
    """Learner 0 of three, which does not block on the others."""
    monkeypatch.setenv("TP_SOCKET_IFNAME", "lo")
    endpoint = Endpoint("learner-0", "the token")
    group = make_group(0, endpoint, timeouts=Timeouts(join=0.0, rejoin=0.0))
    endpoint.serve(group.services)
    endpoint.start()
    yield group
    group.close()
    endpoint.stop()


def join(group: LearnerGroup) -> list[Any]:
    return answers_of(group.services["join"]("learner-1", asdict(Candidate(1, 0, 0, "cpu"))))


def test_the_only_learner_changes_nothing() -> None:
    alone, gradient = SingleLearnerGroup(), torch.arange(3.0)
    alone.form(threading.Event())

    assert alone.begin(done=False) == GroupDecision(done=False)
    assert alone.sum(gradient, 7.0) == 7.0
    assert gradient.tolist() == [0, 1, 2]
    assert (alone.rank, alone.size, dict(alone.services)) == (0, 1, {})
    alone.close()


def test_learner_0_goes_on_alone(group: LearnerGroup) -> None:
    threads, gradient = set(threading.enumerate()), torch.arange(3.0)
    group.form(threading.Event())

    assert (group.rank, group.size, group.generation) == (0, 1, 1)
    round_ = group.begin(done=False, total_steps=10**10 + 1)
    assert round_ == GroupDecision(done=False, total_steps=10**10 + 1)
    assert group.sum(gradient, 7.0) == 7.0
    assert gradient.tolist() == [0, 1, 2]
    assert set(threading.enumerate()) <= threads


def test_who_wants_to_come_in_is_noticed_in_the_next_round(group: LearnerGroup) -> None:
    group.form(threading.Event())
    join(group)

    assert group.sum(torch.ones(1), 1.0) == 1.0
    with pytest.raises(GroupChanged, match="another learner joins"):
        group.begin(done=False)


def test_there_are_no_rounds_without_a_group(group: LearnerGroup) -> None:
    with pytest.raises(GroupChanged, match="form one"):
        group.begin(done=False)
    group.form(threading.Event())
    group.close()
    with pytest.raises(GroupChanged, match="form one"):
        group.sum(torch.ones(1), 1.0)


def test_the_last_round_is_the_last_for_those_who_wait_too(group: LearnerGroup) -> None:
    group.form(threading.Event())
    waiting = join(group)

    assert group.begin(done=True).done
    assert waiting == join(group) == [("ok", {"done": True})]
    assert group.begin(done=False).done


def test_who_comes_when_the_run_is_done_is_the_only_one_in_the_last_round() -> None:
    """The group's rank fits its size: the dataflow receives both."""
    group = make_group(2, Endpoint("learner-2", "the token"))
    group._join_round = lambda stopping: (None, None)  # type: ignore[method-assign,assignment,return-value]

    group.form(threading.Event())

    assert (group.rank, group.size) == (0, 1)
    assert group.begin(done=False).done
