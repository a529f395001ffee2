"""Learners that update in step, in processes that are killed, frozen and stopped."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from transport_processes import GRACE_SECONDS, Member, Start

LONG = 1200.0
"""Seconds of a time-out that no test may reach: waiting for it would show as a hang."""
NEVER = {"join": LONG, "collective": LONG}
QUICK = {"join": LONG, "collective": 3.0}
"""Time-outs for tests that freeze a learner. A collective of live learners must never take 3 s."""


class Line(NamedTuple):
    """A learner's report that it has joined a generation, or updated in it."""

    generation: int
    updates: int
    digest: str
    """Digest of parameters and optimizer."""
    rank: int = -1
    size: int = -1
    threads: int = -1
    descriptors: int = -1


class ToyLearner:
    """One process, and all its reports so far."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.lines: list[Line] = []
        word, self.url = member.hear().split()
        assert word == "at"

    def hear(self, *words: str) -> str:
        """The next line that begins with one of `words`."""
        while True:
            word, _, rest = (line := self.member.hear()).partition(" ")
            if word in ("formed", "updated"):
                self.lines.append(_parse(rest))
            if word in words:
                return line

    def formed(self, size: int = 0) -> Line:
        """The next formation of a group, of `size` if given."""
        while True:
            self.hear("formed")
            if size in (0, self.lines[-1].size):
                return self.lines[-1]

    def updated(self, beyond: int = 0) -> Line:
        """Returns the next report of an update that has a count above `beyond`."""
        while True:
            self.hear("updated")
            if self.lines[-1].updates > beyond:
                return self.lines[-1]

    def ends(self) -> bool:
        """Closes the group and ends."""
        return self.hear("closed") == "closed" and self.member.wait() == 0

    def stops(self) -> bool:
        """Closes the group and ends at SIGTERM, inside the grace period."""
        self.member.kill(signal.SIGTERM)
        return self.member.wait(GRACE_SECONDS) == 0 and self.hear("closed") == "closed"


def _parse(text: str) -> Line:
    generation, updates, digest, *others = text.split()
    return Line(int(generation), int(updates), digest, *map(int, others))


def assert_in_step(learners: list[ToyLearner]) -> None:
    """Asserts that learners at the same update of the same generation had the same state."""
    states: dict[tuple[int, int], str] = {}
    shared = 0
    for learner in learners:
        for line in learner.lines:
            key = line.generation, line.updates
            shared += key in states
            assert states.setdefault(key, line.digest) == line.digest, f"not the same at {key}"
    assert shared, "no two were ever seen at the same update"


Learn = Callable[..., ToyLearner]


@pytest.fixture
def learn(start: Start) -> Learn:
    """``learn(index, replicas, url of learner 0, **options)``"""

    def begin(index: int, replicas: int, url: str = "", **options: Any) -> ToyLearner:
        return ToyLearner(start("toy_learner", index, replicas, url, options))

    return begin


def start_all(learn: Learn, replicas: int, **options: Any) -> list[ToyLearner]:
    """All learners, formed."""
    options = {"timeouts": NEVER} | options
    first = learn(0, replicas, **options)
    learners = [first, *(learn(index, replicas, first.url, **options) for index in range(1, replicas))]
    for learner in learners:
        learner.formed(size=replicas)
    return learners


def restart_first(learn: Learn, before: ToyLearner, replicas: int, **options: Any) -> ToyLearner:
    before.member.wait()
    return learn(0, replicas, port=int(before.url.rsplit(":", 1)[1]), **options)


def test_learners_sum_over_all_and_stay_the_same(learn: Learn) -> None:
    learners = start_all(learn, 3, last=60)

    for learner in learners:
        assert learner.updated(beyond=59).updates == 60
        assert learner.hear("done", "stopped") == "done"
        assert learner.ends()
    assert [learner.lines[0].rank for learner in learners] == [0, 1, 2]
    assert_in_step(learners)


def test_the_others_go_on_when_one_is_killed_and_take_it_back(learn: Learn) -> None:
    first, second, third = start_all(learn, 3)
    third.updated()

    third.member.kill()
    alone = [learner.formed(size=2) for learner in (first, second)]
    for learner, line in zip((first, second), alone, strict=True):
        learner.updated(beyond=line.updates)

    again = learn(2, 3, first.url)
    back = [learner.formed(size=3) for learner in (first, second, again)]
    assert len(set(line.digest for line in back)) == 1
    assert back[0].updates > alone[0].updates
    for learner in (first, second, again):
        learner.updated(beyond=back[0].updates + 60)
    assert_in_step([first, second, third, again])


def test_a_learner_that_is_killed_while_it_is_sent_something_is_noticed(start: Start) -> None:
    """gloo does not report the loss of a receiver to the sender, which would block until the time-out."""
    members = [start("broadcaster", 0, 3, "", NEVER)]
    url = members[0].hear()
    members += [start("broadcaster", index, 3, url, NEVER) for index in (1, 2)]
    sender, victim, third = members
    assert [victim.hear(), third.hear()] == [url, url]
    assert {member.hear() for member in members} == {"broadcasts"}
    time.sleep(0.2)  # the victim waits for the sender
    victim.freeze()
    sender.kill(signal.SIGUSR1)
    time.sleep(0.2)  # part of the data has been sent

    victim.kill()
    assert "a learner was lost" in sender.hear()
    assert "a learner was lost" in third.hear(), "it waits for the sender alone, which leaves"
    assert [sender.wait(), third.wait()] == [0, 0]


def test_a_new_learner_0_takes_the_state_of_those_who_outlived_the_last_one(learn: Learn) -> None:
    first, *others = start_all(learn, 3)
    for learner in (first, *others):
        learner.updated(beyond=40)
    for _ in range(2):
        first.member.kill()
        again = restart_first(learn, first, 3, updates=20, timeouts=NEVER)
        lines = [learner.formed(size=3) for learner in (again, *others)]
        assert len(set(line.digest for line in lines)) == 1
        assert lines[0].updates > 40
        assert lines[0].generation > first.lines[-1].generation
        for learner in (again, *others):
            learner.updated(beyond=lines[0].updates + 20)
        assert_in_step([first, again, *others])
        first = again


def test_a_learner_0_that_knows_more_than_the_others_keeps_its_state(learn: Learn) -> None:
    first = learn(0, 2, updates=500, timeouts=NEVER)
    other = learn(1, 2, first.url, updates=20)

    assert first.formed().updates == other.formed().updates == 500


@pytest.mark.parametrize("frozen", [0, 2])
def test_a_frozen_learner_is_left_behind_and_taken_back(learn: Learn, frozen: int) -> None:
    learners = start_all(learn, 3, timeouts=QUICK)
    victim = learners[frozen]
    others = [learner for learner in learners if learner is not victim]
    victim.updated()

    victim.member.freeze()
    reasons = [learner.hear("changed") for learner in others]
    assert any("Timed out" in reason for reason in reasons), reasons
    if frozen:
        for learner in others:
            line = learner.formed(size=2)
            learner.updated(beyond=line.updates)
    victim.member.kill(signal.SIGCONT)

    back = [learner.formed(size=3) for learner in (victim, *others)]
    assert len(set(line.digest for line in back)) == 1
    for learner in learners:
        learner.updated(beyond=back[0].updates)
    assert_in_step(learners)


def test_a_learner_that_is_much_slower_is_waited_for_longer_and_longer(learn: Learn) -> None:
    timeouts = {"join": LONG, "rejoin": LONG, "collective": 0.32}
    first = learn(0, 2, last=2, timeouts=timeouts)
    slow = learn(1, 2, first.url, pace=1.4, timeouts=timeouts)

    said = [first.hear("trouble")]  # after 0.32, 0.64 and 1.28 s; on a busy machine also after longer times
    while (newest := first.hear("trouble", "done")) != "done":
        said.append(newest)
    times = [int(trouble.partition("Timed out waiting ")[2].partition("ms")[0]) for trouble in said]
    assert times == [1280 * 2**i for i in range(len(times))]
    assert slow.hear("done", "stopped") == "done"
    assert first.lines[-1].size == 2


def test_generations_leak_neither_threads_nor_descriptors(learn: Learn) -> None:
    timeouts = NEVER | {"rejoin": LONG}  # learners that leave rejoin
    first = learn(0, 3, timeouts=timeouts)
    second, third = learn(1, 3, first.url, generations=24), learn(2, 3, first.url)

    for learner in (first, second, third):
        while learner.updated().generation < 24:
            continue
        lines = {line.generation: line for line in learner.lines if line.size >= 0}
        assert lines[24].size == 3
        # A thread or a socket may be about to end, but not in all of these generations.
        late = [lines[number] for number in range(21, 25) if number in lines]
        assert min(line.threads for line in late) <= lines[4].threads
        assert min(line.descriptors for line in late) <= lines[4].descriptors


def test_a_learner_stops_also_while_others_are_frozen(learn: Learn) -> None:
    first, second, third = start_all(learn, 3, timeouts=QUICK)
    third.member.freeze()
    assert second.stops()
    assert first.stops(), "in its second generation, or on its way there"


def test_a_learner_that_waits_for_learner_0_stops(learn: Learn) -> None:
    first, second = start_all(learn, 2)
    first.member.kill()
    second.hear("changed")
    assert second.stops()


def test_a_learner_that_comes_after_the_last_round_hears_that_the_run_is_done(learn: Learn) -> None:
    first = learn(0, 2, last=20, linger=True, timeouts={"join": 0.0})
    first.hear("done")

    late = learn(1, 2, first.url)
    assert late.hear("done", "formed", "stopped") != "stopped"
    assert late.hear("done") == "done"


def test_a_large_state_reaches_the_others(learn: Learn) -> None:
    first = learn(0, 2, parameters=13_000_000, updates=7, timeouts=NEVER)  # 104 MB, with its momentum
    other = learn(1, 2, first.url, parameters=13_000_000)

    lines = [first.formed(), other.formed()]
    assert [line.updates for line in lines] == [7, 7]
    assert lines[0].digest == lines[1].digest
