"""Every gradient is counted and every call answered exactly once, whatever the order of events."""

from __future__ import annotations

from collections import Counter

import torch
from gradient_senders import DEADLINE, NOW
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from manual_clock import Clock
from rltraining_trainer.dataflow import Source
from rltraining_trainer.dataflow.gradients import (
    GradientPush,
    GradientQueue,
    GradientSource,
    StragglerPolicy,
    SynchronousGradients,
)
from rltraining_trainer.dataflow.gradients.accounts import GradientState, Place
from soak import SOAK

SAMPLERS = "abc"
INDEX = st.integers(0, len(SAMPLERS) - 1)


class Call:
    """A push, a join or a request for a credit, and its answer."""

    def __init__(self, machine: AnyOrder, source: Source | None = None) -> None:
        self.machine, self.source = machine, source
        self.answers = 0

    def __call__(self, *answer: bool) -> None:
        """``answer``: (whether the push was used, whether there is a credit), or only the latter."""
        machine, used = self.machine, answer[0] if len(answer) == 2 else None
        self.answers += 1
        machine.answered.add(self.source)
        assert self.answers == 1, "answered twice"
        assert machine.gradients.place.epoch or machine.closed, "there are no parameters to answer with"
        machine.check_moment(self)
        if used is False:
            assert self.source not in machine.applied, "it was used"
            machine.refused.add(self.source)
        elif used is True and machine.lives_in(self.source):
            assert self.source not in machine.refused, "it had been said that it was not used"
            assert machine.accepts_before_use or self.source in machine.applied, "the gradient was not used"


class AnyOrder(RuleBasedStateMachine):
    """Invariants of both kinds of gradient sources."""

    gradients: GradientSource
    accepts_before_use = False
    """Whether some gradients are answered before they are applied."""

    def __init__(self) -> None:
        super().__init__()
        self.clock, self.epochs = Clock(), 1
        self.calls: list[Call] = []
        self.pushes: dict[str, list[GradientPush]] = {name: [] for name in SAMPLERS}
        self.lives, self.sequences = Counter[str](), Counter[str]()
        self.applied: Counter[Source] = Counter()
        self.answered: set[Source | None] = set()
        self.refused: set[Source | None] = set()
        self.in_use: list[Source] = []
        self.busy = self.closed = False
        self.pushed = 0
        self.state: GradientState | None = None

    @initialize(first_few=st.booleans())
    def begin(self, first_few: bool) -> None:
        self.gradients = self.make(first_few)
        self.go_on_with_an_epoch()

    def make(self, first_few: bool) -> GradientSource:
        """Makes the source. `first_few`: a step needs only two gradients, or the queue accepts two before their use."""
        raise NotImplementedError

    def check_moment(self, call: Call) -> None:
        raise NotImplementedError

    def take(self) -> list[GradientPush]:
        raise NotImplementedError

    def lives_in(self, source: Source | None) -> bool:
        """Returns whether the sampler that sent it still receives the answer."""
        return source is not None and source.incarnation == str(self.lives[source.sender])

    def go_on_with_an_epoch(self) -> None:
        self.epochs += 1
        self.gradients.restart(f"epoch {self.epochs}")
        self.publish()

    def publish(self) -> None:
        self.busy, self.in_use = False, []
        self.gradients.release()

    @rule(index=INDEX, behind=st.integers(0, 2), position=st.integers(0, 2), lost=st.booleans())
    def push(self, index: int, behind: int, position: int, lost: bool) -> None:
        """Pushes a gradient of the current or an older policy version, twice if its answer is `lost`. Samplers wait for
        the answer before they send the next gradient."""
        name, place = SAMPLERS[index], self.gradients.place
        if self.pushes[name] and self.pushes[name][-1].source not in self.answered:
            return
        if behind:
            place = Place(place.epoch or "epoch 0", max(0, place.iteration - behind + 1), position)
        self.sequences[name] += 1
        source = Source(name, str(self.lives[name]), self.sequences[name])
        push = GradientPush(source, place, behind, torch.zeros(1), 1.0, 1, 0, torch.zeros(0), {})
        self.pushes[name].append(push)
        self.pushed += 1
        self.send(push)
        if lost:
            self.send(push)

    @rule(index=INDEX)
    def repeat(self, index: int) -> None:
        if pushes := self.pushes[SAMPLERS[index]]:
            self.send(pushes[-1])

    @rule(index=INDEX)
    def restart_a_sampler(self, index: int) -> None:
        name = SAMPLERS[index]
        self.lives[name] += 1
        self.sequences[name] = 0
        self.pushes[name].clear()
        self.join(index)

    @rule(index=INDEX)
    def join(self, index: int) -> None:
        self.calls.append(Call(self))
        self.gradients.join(SAMPLERS[index], self.calls[-1])

    @rule(seconds=st.sampled_from([0.5, DEADLINE, 20 * DEADLINE]))
    def time_passes(self, seconds: float) -> None:
        self.clock.now += seconds

    @precondition(lambda self: not self.busy)
    @rule(publish=st.booleans())
    def update(self, publish: bool) -> None:
        """Updates as the learner does. Other rules can run before the parameters are published."""
        if not self.gradients.is_ready(NOW):
            return
        self.busy = True
        before = self.gradients.counts().applied
        taken = [push.source for push in self.take()]
        assert not self.refused & set(taken), "it had been said that it was not used"
        self.in_use = taken
        self.applied.update(taken)
        assert all(self.applied[source] == 1 for source in taken), "applied twice"
        assert self.gradients.counts().applied == before + len(taken)
        if publish:
            self.publish()

    @precondition(lambda self: self.busy)
    @rule()
    def release(self) -> None:
        self.publish()

    @precondition(lambda self: not self.closed)
    @rule(parted=st.booleans())
    def restart(self, parted: bool) -> None:
        if parted:
            self.gradients.restart("")
            self.publish()
        else:
            self.go_on_with_an_epoch()

    @rule()
    def keep_a_checkpoint(self) -> None:
        """Until an update is published, a checkpoint has the parameters from before the update."""
        self.state = self.gradients.get_state()
        assert self.state["applied"] == self.gradients.counts().applied - len(self.in_use)

    @precondition(lambda self: self.state is not None and not self.closed)
    @rule()
    def go_back(self) -> None:
        assert self.state is not None
        self.gradients.restart("")
        self.publish()
        self.gradients.set_state(self.state)
        assert self.gradients.counts().applied == self.state["applied"]
        self.go_on_with_an_epoch()

    @rule(chance=st.integers(0, 9))
    def close(self, chance: int) -> None:
        if chance == 0:
            self.closed, self.busy, self.in_use = True, False, []
            self.gradients.close()

    @invariant()
    def all_gradients_are_accounted_for(self) -> None:
        self.gradients.check_valid()
        counts = self.gradients.counts()
        assert counts.pushed == self.pushed
        assert counts.stale <= counts.dropped

    def teardown(self) -> None:
        self.closed, self.busy, self.in_use = True, False, []
        self.gradients.close()
        self.all_gradients_are_accounted_for()
        assert self.gradients.counts().queued == 0
        assert [call.answers for call in self.calls] == [1] * len(self.calls), "a call was never answered"

    def send(self, push: GradientPush) -> None:
        self.calls.append(Call(self, push.source))
        self.gradients.push(push, self.calls[-1])


class QueueInAnyOrder(AnyOrder):
    COUNT, STALENESS, LIMIT = 2, 5, 2

    @initialize(first_few=st.booleans(), limited=st.booleans())
    def begin(self, first_few: bool, limited: bool) -> None:
        self.limited = limited
        super().begin(first_few)

    def make(self, first_few: bool) -> GradientQueue:
        self.version, self.accepts_before_use = 0, first_few
        queue: GradientQueue = GradientQueue(
            lambda: self.COUNT,
            DEADLINE,
            lambda: self.version,
            capacity=2 * first_few,
            max_lag=self.STALENESS,
            clock=self.clock,
        )
        if self.limited:
            queue.limit(self.LIMIT)
        return queue

    @rule(index=INDEX)
    def request(self, index: int) -> None:
        assert isinstance(self.gradients, GradientQueue)
        self.calls.append(Call(self))
        self.gradients.request(SAMPLERS[index], self.calls[-1])

    @invariant()
    def no_more_samplers_have_credits_than_the_limit_allows(self) -> None:
        assert isinstance(self.gradients, GradientQueue)
        if self.limited and not self.closed:
            assert self.gradients._credits.collecting <= self.LIMIT

    def take(self) -> list[GradientPush]:
        assert isinstance(self.gradients, GradientQueue)
        taken = self.gradients.take()
        assert 1 <= len(taken) <= self.COUNT
        assert all(self.version - push.version <= self.STALENESS for push in taken), "too old"
        assert all(push.place.epoch == self.gradients.place.epoch != "" for push in taken), "of another epoch"
        return taken

    def publish(self) -> None:
        self.version += 1
        super().publish()

    def check_moment(self, call: Call) -> None:
        assert call.source not in self.in_use, "its parameters are not published yet"


class InStepInAnyOrder(AnyOrder):
    def make(self, first_few: bool) -> SynchronousGradients:
        patience = StragglerPolicy(lambda: set(SAMPLERS))
        return SynchronousGradients(2, patience, DEADLINE, count=2 if first_few else None, clock=self.clock)

    def take(self) -> list[GradientPush]:
        assert isinstance(self.gradients, SynchronousGradients)
        place, queued = self.gradients.place, self.gradients.counts().queued
        taken = self.gradients.take()
        assert len(taken) == queued, "all gradients of this place"
        assert all(push.place == place and place.epoch for push in taken), "of other parameters"
        if len(self.applied) % 3 == 2:
            self.gradients.end_iteration()
        return taken

    def check_moment(self, call: Call) -> None:
        assert not self.busy, "the parameters are being changed"

    @rule(index=INDEX, behind=st.booleans())
    def add(self, index: int, behind: bool) -> None:
        assert isinstance(self.gradients, SynchronousGradients)
        place = self.gradients.place
        asked: list[None] = []
        self.sums.append(asked)
        answer = lambda total: asked.append(None)  # noqa: E731
        place = place._replace(iteration=place.iteration - behind)
        self.gradients.add(SAMPLERS[index], place, torch.ones(3), answer)

    @invariant()
    def no_sum_is_answered_twice(self) -> None:
        assert all(len(asked) <= 1 for asked in self.sums)

    def __init__(self) -> None:
        self.sums: list[list[None]] = []
        super().__init__()

    def teardown(self) -> None:
        super().teardown()
        assert all(len(asked) == 1 for asked in self.sums), "a request for a sum was never answered"


TestQueue = QueueInAnyOrder.TestCase
TestInStep = InStepInAnyOrder.TestCase
TestQueue.settings = TestInStep.settings = settings(max_examples=40 * SOAK, stateful_step_count=30)
