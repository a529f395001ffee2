"""When a rendezvous round forms, and which learners it includes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rltraining_trainer.group.rendezvous import Candidate, choose_backend, is_complete, next_round


def candidate(index: int, updates: int = 0, generation: int = 0, device: str = "cpu") -> Candidate:
    return Candidate(index, generation, updates, device)


@pytest.mark.parametrize(
    ("joined", "expected", "now", "complete"),
    [
        ((), (), 0.0, True),
        ((1, 2), (1, 2), 0.0, True),
        ((2, 1, 3), (1, 2), 0.0, True),
        ((1,), (1, 2), 4.9, False),
        ((3,), (1, 2), 4.9, False),
        ((1,), (1, 2), 5.0, True),
    ],
)
def test_a_generation_forms_when_all_expected_have_joined_or_it_is_late(
    joined: tuple[int, ...], expected: tuple[int, ...], now: float, complete: bool
) -> None:
    assert is_complete(joined, expected, now, deadline=5.0) is complete


CANDIDATES = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(0, 3)),
    min_size=1,
    unique_by=lambda fields: fields[0],
)


@given(CANDIDATES, st.randoms(use_true_random=False))
def test_no_update_is_lost_and_the_order_of_arrival_does_not_matter(fields, random) -> None:
    candidates = [candidate(index, updates, generation) for index, updates, generation in fields]
    generation = next_round(candidates)

    source = next(c for c in candidates if c.index == generation.members[generation.source])
    assert source.updates == max(c.updates for c in candidates)
    assert all(c.index >= source.index for c in candidates if c.updates == source.updates)
    assert list(generation.members) == sorted(c.index for c in candidates)
    assert generation.number == 1 + max(c.generation for c in candidates)
    random.shuffle(candidates)
    assert next_round(candidates) == generation


@pytest.mark.parametrize(
    ("devices", "backend"),
    [
        (["cpu", "cpu"], "gloo"),
        (["GPU-a", "GPU-b"], "nccl"),
        (["GPU-a", "GPU-a"], "gloo"),
        (["GPU-a", "cpu"], "gloo"),
    ],
)
def test_nccl_is_for_learners_with_a_gpu_each(devices: list[str], backend: str) -> None:
    assert choose_backend(devices) == backend
