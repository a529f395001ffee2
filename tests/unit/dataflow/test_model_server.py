"""Parameters go out whole, only when they are new, under versions that only grow."""

from __future__ import annotations

import threading

import torch
from rltraining_trainer.dataflow import WANTS_NONE, ModelServer


def test_nothing_is_handed_out_before_the_first_version() -> None:
    assert ModelServer().newer_than(-1) == (0, None)


def test_a_pull_at_the_current_version_moves_nothing() -> None:
    models = ModelServer()
    version = models.publish(torch.ones(10))

    newest, parameters = models.newer_than(version - 1)
    assert (newest, parameters is not None) == (1, True)
    assert models.bytes_sent == 40
    assert models.newer_than(version) == (1, None)
    assert models.bytes_sent == 40
    assert models.pulls == 2


def test_a_sampler_ahead_of_a_restored_learner_gets_its_parameters() -> None:
    models = ModelServer()
    models.publish(torch.ones(1))

    version, parameters = models.newer_than(99)
    assert version == 1
    assert parameters is not None


def test_what_was_handed_out_never_changes() -> None:
    models = ModelServer()
    flat = torch.zeros(4, requires_grad=True)
    models.publish(flat)
    _, first = models.newer_than(0)
    with torch.no_grad():
        flat += 1
    models.publish(flat)
    _, second = models.newer_than(0)

    assert first is not None
    assert second is not None
    assert (first.tolist(), second.tolist()) == ([0.0] * 4, [1.0] * 4)
    assert not first.requires_grad


def test_versions_go_on_after_a_restore() -> None:
    models = ModelServer()
    for _ in range(3):
        models.publish(torch.ones(1))
    models.newer_than(0)
    restored = ModelServer()
    restored.set_state(models.get_state())

    assert restored.newer_than(0) == (3, None)
    assert restored.publish(torch.ones(1)) == 4
    assert restored.bytes_sent == models.bytes_sent


def test_readers_never_see_a_torn_or_an_older_version() -> None:
    models = ModelServer()
    models.publish(torch.full((1000,), 1.0))
    finished = threading.Event()
    faults: list[str] = []

    def read() -> None:
        last = 0
        while not finished.is_set():
            version, parameters = models.newer_than(last)
            if version < last:
                faults.append(f"{version} after {last}")
            if parameters is not None and not bool((parameters == version).all()):
                faults.append(f"version {version} holds {parameters.unique()}")
            last = version

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    flat = torch.zeros(1000)
    for version in range(2, 300):
        models.publish(flat.fill_(version))
    finished.set()
    for reader in readers:
        reader.join()

    assert not faults


def test_who_wants_no_parameters_only_hears_their_version() -> None:
    server = ModelServer()
    server.publish(torch.zeros(3))

    assert server.newer_than(WANTS_NONE) == (1, None)
    assert server.bytes_sent == 0


def test_versions_go_on_where_a_running_learner_goes_back_to_a_checkpoint() -> None:
    """Otherwise a sampler would hold other parameters under the version that is current again."""
    models = ModelServer()
    models.publish(torch.zeros(1))
    checkpoint = models.get_state()
    models.publish(torch.ones(1))
    models.set_state(checkpoint)

    assert models.publish(torch.zeros(1)) == 3
    assert models.newer_than(2)[1] is not None
