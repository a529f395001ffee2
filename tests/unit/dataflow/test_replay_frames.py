"""Frame stacks that are stored once are returned unchanged and use the documented memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rltraining_trainer.dataflow.replay import Column, ReplayBuffer
from rltraining_trainer.dataflow.replay.frames import FrameStacks
from soak import SOAK

from tests.unit.dataflow.naive_replay import NaiveReplay, random_items


def transitions(
    random: np.random.Generator, form: tuple, kinds: int, stack: int, length: int, n_step: int, episodes: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns (observation, next observation) of each step, as FrameStackObservation makes them.

    The next observation is n steps later or at the end of the episode. The first stacks repeat the
    reset's frame. There are ``kinds`` different frames.
    """
    shape, dtype = form
    found = []
    for _ in range(episodes):
        sorts = [np.random.default_rng(sort) for sort in random.integers(kinds, size=length + 1)]
        frames = [sort.integers(0, 256, shape).astype(dtype) for sort in sorts]
        frames = [frames[0]] * (stack - 1) + frames
        seen = [np.stack(frames[t : t + stack]) for t in range(length + 1)]
        found += [(seen[t], seen[min(t + n_step, length)]) for t in range(length)]
    return found


def interleaved(streams: list[list], chunk: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns chunks of each stream in turn. Keeps each stream's order, except within a chunk."""
    random, result = np.random.default_rng(seed), []
    for start in range(0, max(map(len, streams)), chunk):
        part = [item for stream in streams for item in stream[start : start + chunk]]
        result += [part[i] for i in random.permutation(len(part))]
    return result


def columns_of(shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, Column]:
    stacks = Column(shape, dtype)
    return {"observation": stacks, "action": Column((), torch.int64), "next_observation": stacks}


def frames_of(buffer: ReplayBuffer) -> FrameStacks:
    return buffer._stores["stacks"]


def distinct_frames(naive: NaiveReplay) -> int:
    held = [item[name] for item in naive.items.values() for name in ("observation", "next_observation")]
    return len({frame.numpy().tobytes() for stack in held for frame in stack})


def add_all(buffer: ReplayBuffer, naive: NaiveReplay, items: list, sizes: list[int]) -> None:
    """Adds the items in calls of these sizes, and compares buffer and twin after each call."""
    start = call = 0
    while start < len(items):
        part = items[start : start + max(1, sizes[call % len(sizes)])]
        batch = {
            # Not contiguous in memory, like the observations of a vector environment.
            "observation": torch.from_numpy(np.stack([item[0] for item in part], -1)).movedim(-1, 0),
            "next_observation": torch.from_numpy(np.stack([item[1] for item in part], -1)).movedim(-1, 0),
            "action": torch.arange(start, start + len(part)),
        }
        buffer.add(batch, torch.ones(len(part)))
        naive.add(batch, torch.ones(len(part)))
        buffer.check_valid()
        naive.check(buffer.sample(2 * buffer.size))
        assert frames_of(buffer).count == distinct_frames(naive)
        start, call = start + len(part), call + 1


@settings(max_examples=40 * SOAK)
@given(
    stack=st.integers(2, 4),
    environments=st.integers(1, 3),
    n_step=st.integers(1, 5),
    length=st.integers(1, 7),
    kinds=st.sampled_from([2, 5, 10**9]),
    capacity=st.integers(1, 40),
    chunk=st.integers(1, 6),
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=3),
    form=st.sampled_from([((3, 5), np.uint8), ((2, 2), np.float32), ((), np.float64), ((4, 2, 1), np.int16)]),
    seed=st.integers(0, 99),
)
def test_streams_of_stacks_are_those_of_a_buffer_that_keeps_them_whole(
    stack: int,
    environments: int,
    n_step: int,
    length: int,
    kinds: int,
    capacity: int,
    chunk: int,
    sizes: list[int],
    form: tuple,
    seed: int,
) -> None:
    shape, dtype = form
    random = np.random.default_rng(seed)
    streams = [
        transitions(random, form, kinds, stack, length + i, n_step, episodes=3) for i in range(environments)
    ]
    columns = columns_of((stack, *shape), torch.from_numpy(np.empty(0, dtype)).dtype)
    buffer = ReplayBuffer(
        capacity, columns, kind="Uniform", priority_exponent=0, frame_stack=stack, seed=seed
    )
    add_all(buffer, NaiveReplay(capacity, None), interleaved(streams, chunk, seed), sizes)


def test_memory_is_about_one_frame_a_transition() -> None:
    """Adds two environments with episodes of 20 steps, one vector step per call.

    Each call shares frames with the previous calls.
    """
    capacity, length, episodes = 80, 20, 4
    random = np.random.default_rng(0)
    streams = [transitions(random, ((9, 9), np.uint8), 10**9, 4, length, 3, episodes) for _ in range(2)]
    columns = columns_of((4, 9, 9), torch.uint8)
    buffer = ReplayBuffer(capacity, columns, kind="Uniform", priority_exponent=0, frame_stack=4, seed=0)
    naive = NaiveReplay(capacity, None)
    add_all(buffer, naive, interleaved(streams, 1, 0), [2])
    assert (buffer.size, buffer.counts.evicted) == (capacity, capacity)
    assert frames_of(buffer).count == capacity + capacity // length
    assert len(frames_of(buffer)._frames) <= 1.25 * frames_of(buffer).count


def test_frames_of_the_same_fingerprint_are_still_told_apart() -> None:
    columns = columns_of((2, 3), torch.uint8)
    buffer = ReplayBuffer(7, columns, kind="Uniform", priority_exponent=0, frame_stack=2, seed=0)
    frames_of(buffer)._weights[:] = 0
    naive = NaiveReplay(7, None)
    for call in range(12):
        items = random_items(columns, call % 10, call, kinds=3)
        buffer.add(items, torch.ones(call % 10))
        naive.add(items, torch.ones(call % 10))
        buffer.check_valid()
        if buffer.size:
            naive.check(buffer.sample(30))
    other = ReplayBuffer(7, columns, kind="Uniform", priority_exponent=0, frame_stack=2, seed=0)
    other.set_state(buffer.get_state())
    other.check_valid()
    naive.check(other.sample(30))
    other.clear()
    other.check_valid()
    assert frames_of(other).count == 0


def test_frames_are_compared_by_their_bytes() -> None:
    columns = columns_of((4, 1), torch.float32)
    buffer = ReplayBuffer(4, columns, kind="Uniform", priority_exponent=0, frame_stack=4, seed=0)
    stacks = torch.tensor([0.0, -0.0, np.nan, -np.nan]).reshape(1, 4, 1)
    buffer.add(
        {"observation": stacks, "next_observation": stacks, "action": torch.zeros(1, dtype=torch.int64)},
        torch.ones(1),
    )
    assert frames_of(buffer).count == 4
    drawn = buffer.sample(1).items["observation"]
    assert torch.equal(drawn.view(torch.int32), stacks.view(torch.int32))


@pytest.mark.parametrize(
    "columns",
    [
        {"observation": Column((2, 3), torch.uint8)},
        {"observation": Column((2, 3), torch.uint8), "next_observation": Column((2, 3), torch.int8)},
        {"observation": Column((3, 3), torch.uint8), "next_observation": Column((3, 3), torch.uint8)},
        {"observation": Column((), torch.uint8), "next_observation": Column((), torch.uint8)},
        {},
    ],
    ids=["one", "types", "length", "scalar", "none"],
)
def test_columns_that_are_not_stacks_are_refused(columns: dict[str, Column]) -> None:
    with pytest.raises(ValueError, match="frame stack of 2, observation and next_observation must be alike"):
        ReplayBuffer(3, columns, kind="Uniform", priority_exponent=0, frame_stack=2, seed=0)


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda frames: frames._references.__iadd__(1), "references is wrong"),
        (lambda frames: frames._free.pop(), "is lost"),
        (
            lambda frames: frames._found.__setitem__(12345, int(frames._numbers[1, 0])),
            "another's fingerprint",
        ),
        (lambda frames: frames._frames.__iadd__(np.uint64(1)), "has changed"),
    ],
    ids=["references", "free", "found", "frames"],
)
def test_invalid_frames_are_said(spoil: Any, complaint: str) -> None:
    columns = columns_of((2, 3), torch.uint8)
    buffer = ReplayBuffer(5, columns, kind="Uniform", priority_exponent=0, frame_stack=2, seed=0)
    buffer.add(random_items(columns, 5, 0), torch.ones(5))
    buffer.add(random_items(columns, 1, 0, kinds=1), torch.ones(1))
    assert frames_of(buffer)._free
    spoil(frames_of(buffer))
    with pytest.raises(AssertionError, match=complaint):
        buffer.check_valid()
