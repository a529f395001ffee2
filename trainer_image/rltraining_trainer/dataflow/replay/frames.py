"""Storage of frame stacks that keeps each distinct frame once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rltraining_trainer.dataflow.replay.storage import Column, Items, Ring, Slots

STACKED = ("observation", "next_observation")
GROWTH = 1 / 8
CHUNK_BYTES = 1 << 19
"""Bytes compared at a time, about the size of a core's cache."""

Words = NDArray[np.uint64]


class FrameStacks:
    """Stores the columns `observation` and `next_observation`, both ``[stack, *frame]``, as frame
    indices.

    A frame that equals a stored frame byte for byte is not stored again. Frames are reference
    counted and freed with the last transition that uses them. The order of transitions, the number
    of environments and the number of calls do not matter. Equal frames are found by a 64-bit
    fingerprint with random weights and then compared completely. Different frames are therefore
    never confused: if they have the same fingerprint, both are stored.

    Memory: an episode of L steps has L + 1 distinct frames (its first frame fills the first stacks)
    and L transitions, for n-step returns of any length. That is 1 + 1/L frames per transition, plus
    16·stack bytes of indices, and about 150 bytes per frame for the lookup. Stacks of 4 frames of
    84x84 bytes take 7.3 KB per transition instead of 56.4 KB. Frames that all differ take as much
    memory as the stacks would. The memory grows by an eighth at a time.
    """

    def __init__(self, ring: Ring, column: Column, seed: int) -> None:
        self._ring = ring
        self._column = column
        self._stack, *frame = column.shape
        self._elements = math.prod(frame)
        self._bytes = self._elements * column.dtype.itemsize
        words = -(-self._bytes // 8)
        self._weights = np.random.default_rng(seed).integers(1, 1 << 63, words, np.uint64) | np.uint64(1)
        self._frames: Words = np.empty((0, words), np.uint64)
        self._keys: Words = np.empty(0, np.uint64)
        self._references = np.empty(0, np.int64)
        self._free: list[int] = []
        # Maps fingerprints to frames.
        self._found: dict[int, int] = {}
        self._numbers = np.zeros((ring.capacity, len(STACKED) * self._stack), np.int64)

    @property
    def count(self) -> int:
        """Number of distinct frames stored."""
        return len(self._frames) - len(self._free)

    def put(self, first: int, items: Mapping[str, Tensor]) -> None:
        parts = [self._number(self._as_words(items[name])).reshape(-1, self._stack) for name in STACKED]
        numbers = np.concatenate(parts, 1)
        for slots, part in self._ring.ranges(first, len(numbers)):
            self._numbers[slots] = numbers[part]

    def drop(self, first: int, count: int) -> None:
        gone = self._numbers.take(self._ring.slots(first, count), 0).reshape(-1)
        np.subtract.at(self._references, gone, 1)
        unused = np.unique(gone[self._references[gone] == 0])
        for number, key in zip(unused.tolist(), self._keys[unused].tolist(), strict=True):
            if self._found.get(key) == number:
                del self._found[key]
        self._free += unused.tolist()

    def take(self, slots: Slots) -> Items:
        numbers = self._numbers.take(slots, 0).reshape(len(slots), len(STACKED), self._stack)
        return {name: self._stacks(numbers[:, i]) for i, name in enumerate(STACKED)}

    def get_state(self) -> dict[str, Any]:
        numbers = self._numbers.take(self._ring.held(), 0)
        used, renumbered = np.unique(numbers, return_inverse=True)
        return {
            "frames": torch.from_numpy(self._frames.take(used, 0).view(np.uint8)),
            "numbers": torch.from_numpy(renumbered.reshape(numbers.shape)),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self._found.clear()
        self._references.fill(0)
        self._free = list(range(len(self._frames)))
        frames = self._number(state["frames"].numpy().view(np.uint64))
        # Replace the references counted by _number by those of the transitions.
        self._references[frames] = 0
        numbers = frames[state["numbers"].numpy()]
        np.add.at(self._references, numbers.reshape(-1), 1)
        for slots, part in self._ring.ranges(self._ring.evicted, len(numbers)):
            self._numbers[slots] = numbers[part]

    def check_valid(self) -> None:
        """Raises AssertionError with the violated invariant."""
        numbers = self._numbers[self._ring.held()].reshape(-1)
        references = np.bincount(numbers, minlength=len(self._frames))
        assert np.array_equal(references, self._references), "a frame's count of references is wrong"
        assert sorted(self._free) == np.flatnonzero(references == 0).tolist(), (
            "a frame is lost, or free and in use"
        )
        for key, number in self._found.items():
            assert references[number], f"frame {number} is found, but not held"
            assert int(self._keys[number]) == key, f"frame {number} is found by another's fingerprint"
        used = np.unique(numbers)
        assert np.array_equal(self._frames[used] @ self._weights, self._keys[used]), "a frame has changed"

    def _number(self, frames: Words) -> NDArray[np.int64]:
        """Stores new frames of `frames` ``[m, words]``, and counts a reference to each."""
        # Look frames up by fingerprint and store those that are not found.
        keys, first, inverse = np.unique(frames @ self._weights, return_index=True, return_inverse=True)
        known = np.array([self._found.get(key, -1) for key in keys.tolist()], np.int64)
        new = np.flatnonzero(known < 0)
        known[new] = self._keep(frames, first[new], keys[new])
        self._found.update(zip(keys[new].tolist(), known[new].tolist(), strict=True))
        numbers: NDArray[np.int64] = known[inverse]
        # Store frames that differ from the frame with their fingerprint.
        other = self._unequal(frames, numbers)
        numbers[other] = self._keep(frames, other, keys[inverse[other]])
        np.add.at(self._references, numbers, 1)
        return numbers

    def _keep(self, frames: Words, rows: NDArray[np.int64], keys: Words) -> list[int]:
        """Stores `frames[rows]` and returns their indices."""
        count = len(rows)
        if count > len(self._free):
            self._grow(count - len(self._free))
        numbers = self._free[len(self._free) - count :]
        del self._free[len(self._free) - count :]
        self._frames[numbers] = frames[rows]
        self._keys[numbers] = keys
        return numbers

    def _grow(self, missing: int) -> None:
        before = len(self._frames)
        size = before + max(missing, int(before * GROWTH))
        for array in (self._frames, self._keys, self._references):
            # Resize in place: no other array refers to this memory, so pages are remapped.
            array.resize((size, *array.shape[1:]), refcheck=False)
        self._free += range(before, size)

    def _unequal(self, frames: Words, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the rows of `frames` that differ from the stored frames at `numbers`."""
        rows = max(1, CHUNK_BYTES // max(1, 8 * frames.shape[1]))
        parts = [
            start + np.flatnonzero((frames[part] != self._frames.take(numbers[part], 0)).any(1))
            for start in range(0, len(frames), rows)
            for part in (slice(start, start + rows),)
        ]
        return np.concatenate([np.empty(0, np.int64), *parts])

    def _as_words(self, stacks: Tensor) -> Words:
        """Converts ``[K, stack, *frame]`` to ``[K * stack, words]``, padded with zeros."""
        rows = stacks.shape[0] * self._stack
        octets = stacks.contiguous().reshape(rows, self._elements).view(torch.uint8).numpy()
        if self._bytes % 8:
            octets = np.pad(octets, ((0, 0), (0, -self._bytes % 8)))
        return octets.view(np.uint64)

    def _stacks(self, numbers: NDArray[np.int64]) -> Tensor:
        """Returns the frames at `numbers` ``[k, stack]`` as ``[k, stack, *frame]``."""
        octets = self._frames.take(numbers.reshape(-1), 0).view(np.uint8)
        if self._bytes % 8:
            octets = np.ascontiguousarray(octets[:, : self._bytes])
        return torch.from_numpy(octets).view(self._column.dtype).reshape(len(numbers), *self._column.shape)
