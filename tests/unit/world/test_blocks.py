"""The path of blocks between a learner and a sampler, over real sockets. Both are this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from discoverable import Discoverable
from rltraining_api.reproducible import Reproducible
from rltraining_trainer.dataflow import NO_MOMENTS, ModelServer
from rltraining_trainer.dataflow.block_queue import BlockRollout
from rltraining_trainer.dataflow.gradients import UnrollReader
from rltraining_trainer.metrics.hash_chain import HASHES
from rltraining_trainer.transport import Endpoint, Stopped
from rltraining_trainer.world.blocks import LearnerBlocks, SamplerBlocks, processor
from rltraining_trainer.world.session import Connections

T, B = 2, 3
UNROLL: dict[str, Any] = {
    "observation": torch.zeros(T + 1, B, 4),
    "action": torch.zeros(T, B, dtype=torch.int64),
    "log_prob": torch.zeros(T, B),
    "reward": torch.zeros(T, B),
    "ended": torch.zeros(T, B, dtype=torch.bool),
    "valid": torch.ones(T, B, dtype=torch.bool),
    "first": torch.zeros(T + 1, B, dtype=torch.bool),
    "state": (),
    "moments": NO_MOMENTS,
    "episodes": torch.zeros(B, dtype=torch.int64),
    "episode_return": torch.zeros(0),
    "episode_length": torch.zeros(0, dtype=torch.int64),
}


class Pair(Discoverable):
    """A learner and its only sampler, which has the parameters in ``parameters``."""

    def __init__(self, folder: Path, lag: int = 0) -> None:
        self.folder, self.lag = folder, lag
        self.models = ModelServer()
        self.models.publish(torch.full((1,), 1.0))
        self.learner = self.make_learner()
        services: Any = {
            f"blocks/{name}": lambda sender, payload, name=name: self.learner.services[f"blocks/{name}"](
                sender, payload
            )
            for name in ("push", "deliver", "pull")
        }
        super().__init__(Endpoint("me", "secret", services))
        context: Any = SimpleNamespace(
            tls_port=None,
            token="secret",
            stopping=threading.Event(),
            learners=(self.url,),
        )
        self.parameters = torch.zeros(1)
        self.make_sampler: Callable[[], SamplerBlocks] = lambda: SamplerBlocks(
            Connections(context, self.endpoint), 1.0
        )
        self.sampler = self.make_sampler()
        self.sampler.attach(self.parameters)

    def make_learner(self) -> LearnerBlocks:
        reader = UnrollReader(length=T, observation_shape=(4,), action_shape=(), state_sizes=())
        return LearnerBlocks(
            Reproducible(blocks=2, hash_every=1, take_over_seconds=1.0),
            reader.unroll,
            self.models,
            lambda: ["me"],
            self.lag,
            self.folder,
            threading.Event(),
            large=False,
        )

    def restart_sampler(self) -> None:
        self.sampler = self.make_sampler()
        self.sampler.attach(self.parameters)

    def update(self) -> None:
        """Makes an update of the sampler's rollouts, and publishes its parameters."""
        assert [rollout.block for rollout in self.learner.take(10.0)] == [0, 1]
        update = self.learner.update
        self.learner.end(torch.full((1,), float(update)), 10 * (update + 1))
        self.models.publish(torch.full((1,), 2.0 + update))
        self.learner.tick()

    def push(self, update: int | None = None) -> None:
        """Sends rollouts of both blocks for an update."""
        blocks = [] if update is None else [BlockRollout(block, update, UNROLL, {}) for block in range(2)]
        held = {} if update is None else dict.fromkeys(range(2), update + 1)
        self.sampler.push(blocks, held)

    def work(self) -> list[tuple[int, int, bool]]:
        """Returns block, update, and whether there is a state, of the sampler's work."""
        return [(one.block, one.update, one.state is not None) for one in self.sampler.work]


@pytest.fixture
def pair(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Pair]:
    """The parameter, if there is one, is the lag."""
    monkeypatch.setenv("TP_SOCKET_IFNAME", "lo")
    pair = Pair(tmp_path, getattr(request, "param", 0))
    yield pair
    pair.learner.close()
    pair.close()


def test_a_sampler_makes_rollouts_with_the_parameters_of_their_update(pair: Pair) -> None:
    pair.learner.on_group_formed(0, 1)
    pair.push()
    assert pair.work() == [(0, 0, False), (1, 0, False)]
    assert pair.parameters.tolist() == [1.0]
    updates = threading.Thread(target=pair.update)
    updates.start()
    pair.push(0)
    updates.join()
    assert pair.work() == [(0, 1, False), (1, 1, False)]
    assert pair.parameters.tolist() == [2.0]
    assert pair.learner.metrics() == {
        "unrolls/pushed": 2,
        "unrolls/used": 2,
        "unrolls/dropped": 0,
        "unrolls/queued": 0,
        "blocks/moved": 0,
    }
    pair.restart_sampler()
    pair.push()
    assert pair.work() == [(0, 1, True), (1, 1, True)]
    pair.learner.finish()
    with pytest.raises(Stopped):
        pair.push(1)
    assert len((pair.folder / HASHES).read_text().splitlines()) == 1


def test_an_answer_that_lacks_the_parameters_of_its_update_is_not_used(pair: Pair) -> None:
    """The learner restarts, and reaches the version that the sampler had, with other parameters."""
    pair.models.publish(torch.full((1,), 9.0))
    pair.learner.on_group_formed(0, 1)
    pair.push()
    assert (pair.sampler.version, pair.parameters.tolist()) == (2, [9.0])

    def restart() -> None:
        """Ends the connection, and makes an update after the sampler has attached again."""
        assert pair.learner.take(10.0)
        pair.models = ModelServer()
        pair.models.publish(torch.full((1,), 5.0))
        old, pair.learner = pair.learner, pair.make_learner()
        pair.endpoint.stop()
        pair.endpoint.start()
        old.close()
        pair.learner.on_group_formed(0, 1)
        pair.update()

    restarts = threading.Thread(target=restart)
    restarts.start()
    pair.push(0)
    restarts.join()
    assert pair.work() == [(0, 1, False), (1, 1, False)]
    assert (pair.sampler.version, pair.parameters.tolist()) == (2, [2.0])


@pytest.mark.parametrize("pair", [1], indirect=True)
def test_with_a_lag_rollouts_lack_the_newest_update_also_after_a_restart(pair: Pair) -> None:
    # The rollouts of the first update are made with the initial parameters.
    pair.learner.on_group_formed(0, 1)
    pair.push()
    assert (pair.work(), pair.parameters.tolist()) == ([(0, 0, False), (1, 0, False)], [1.0])

    # Samplers make the rollouts of the second update with them too, before the learner makes the first.
    pair.push(0)
    assert (pair.work(), pair.parameters.tolist()) == ([(0, 1, False), (1, 1, False)], [1.0])
    pair.update()

    # A learner that restarts asks for the same rollouts, made with the same parameters.
    state = pair.learner.get_state()
    pair.learner.close()
    pair.models = ModelServer()
    pair.models.set_state({"version": 2, "pulls": 0, "bytes_sent": 0})
    pair.learner = pair.make_learner()
    pair.learner.set_state(state)
    pair.models.publish(torch.full((1,), 2.0))
    pair.learner.on_group_formed(0, 1)
    pair.restart_sampler()
    pair.push()
    assert (pair.work(), pair.parameters.tolist()) == ([(0, 1, True), (1, 1, True)], [1.0])

    # The rollouts of the third update are made with the parameters after the first.
    pair.push(1)
    assert (pair.work(), pair.parameters.tolist()) == ([(0, 2, False), (1, 2, False)], [2.0])


@pytest.mark.parametrize("pair", [1], indirect=True)
def test_a_sampler_that_waits_for_work_delivers_its_rollouts_first(pair: Pair) -> None:
    pair.learner.on_group_formed(0, 1)
    pair.push()
    pair.push(0)
    # The parameters for the third update are missing, which need the rollouts of the first two.
    for update in range(1, 3):
        updates = threading.Thread(target=pair.update)
        updates.start()
        pair.push(update)
        updates.join()
        assert pair.work() == [(0, update + 1, False), (1, update + 1, False)]
        assert pair.parameters.tolist() == [1.0 + update]
    assert pair.learner.metrics()["unrolls/dropped"] == 0
    assert pair.learner.metrics()["blocks/moved"] == 0


def test_processors_of_several_kinds_are_reported(pair: Pair) -> None:
    assert pair.learner.warnings() == ()
    state = pair.learner.get_state()
    assert state["processors"] == [processor()]
    pair.learner.set_state(state | {"processors": ["z80"]})
    (warning,) = pair.learner.warnings()
    assert warning.reason == "ProcessorsDiffer"
    assert warning.message.endswith(f"this run has used {processor()} and z80")
