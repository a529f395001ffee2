"""Parameters are sent complete, only when they are new, under versions that only increase."""

from __future__ import annotations

import threading

import torch
from rltraining_trainer.dataflow import WANTS_NONE, ModelServer, flatten_parameters, load_flat
from torch import nn


def test_parameters_go_out_only_to_who_has_others_and_wants_them() -> None:
    models = ModelServer()
    assert models.newer_than(-1) == (0, None), "there are none yet"
    version = models.publish(torch.ones(10))

    for other in (version - 1, version + 99):  # the latter is of a learner that was restored meanwhile
        newest, parameters = models.newer_than(other)
        assert (newest, parameters is not None) == (1, True)
    assert models.newer_than(version) == models.newer_than(WANTS_NONE) == (1, None)
    assert models.bytes_sent == 80
    assert models.pulls == 5


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


def test_a_snapshot_is_served_after_newer_parameters_are_published() -> None:
    models = ModelServer()
    models.publish(torch.full((1,), 1.0))
    snapshot = models.newest
    models.publish(torch.full((1,), 2.0))
    assert models.newer_than(0, snapshot) == (1, torch.ones(1))
    assert models.newer_than(1, snapshot) == (1, None)
    assert models.newer_than(1) == (2, torch.full((1,), 2.0))

    # Other parameters, of a checkpoint, get a new version, and so do the newest.
    other = torch.full((1,), 9.0)
    snapshot = models.with_version(other)
    other.zero_()
    assert models.newer_than(2, snapshot) == (3, torch.full((1,), 9.0))
    assert models.newer_than(3) == (4, torch.full((1,), 2.0))


def test_versions_continue_after_a_restore() -> None:
    """Otherwise a sampler would hold different parameters under the current version."""
    models, restored = ModelServer(), ModelServer()
    for _ in range(3):
        models.publish(torch.ones(1))
    models.newer_than(0)
    state = models.get_state()
    restored.set_state(state)
    models.publish(torch.ones(1))
    models.set_state(state)

    assert restored.newer_than(0) == (3, None)
    assert restored.bytes_sent == models.bytes_sent
    assert (restored.publish(torch.ones(1)), models.publish(torch.ones(1))) == (4, 5)


def test_readers_never_see_a_torn_or_an_older_version() -> None:
    models, finished, faults = ModelServer(), threading.Event(), list[str]()

    def read() -> None:
        last = 0
        while not finished.is_set():
            version, parameters = models.newer_than(last)
            if version < last or (parameters is not None and not bool((parameters == version).all())):
                faults.append(f"{version} after {last}: {parameters}")
            last = version

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    flat = torch.zeros(1000)
    for version in range(1, 200):
        models.publish(flat.fill_(version))
    finished.set()
    for reader in readers:
        reader.join()

    assert not faults


def test_samplers_receive_rounded_parameters_with_half_of_the_bytes() -> None:
    models = ModelServer(rounds=True)
    module = nn.Linear(100, 100)
    module.bias.requires_grad_(False)
    flat = flatten_parameters(module)
    models.publish(flat)
    newest = models.newest.parameters
    assert newest is not None
    assert torch.equal(newest, flat), "the learner's own copy is not rounded"

    first, second = models.newer_than(0).parameters, models.newer_than(0).parameters
    assert first is second, "they are rounded once for all samplers"
    received = torch.zeros(10_100)
    assert first is not None
    load_flat(received, first)
    assert torch.equal(received[:100], flat[:100].bfloat16().float())
    assert torch.equal(received[10_000:], flat[10_000:])
    assert models.bytes_sent == 2 * (2 * 10_100 + 8 * 100 + 4 * 100)

    # Another tensor may have parts that need all digits.
    models.publish(torch.full((3,), 1.001))
    assert torch.equal(models.newer_than(0).parameters, torch.full((3,), 1.001))  # type: ignore[arg-type]
