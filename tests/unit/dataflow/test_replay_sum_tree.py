"""The sum tree against frozen vectors, a naive twin, and floating-point limits, compiled and not compiled."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rltraining_trainer.dataflow.replay.sum_tree import KERNEL, SumTree

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "replay.json").read_text())["sum_tree"]

ENGINES = pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(None, id="numpy"),
        pytest.param(
            KERNEL,
            id="compiled",
            marks=pytest.mark.skipif(
                KERNEL is None, reason="the trainer was installed without a C compiler: no libsum_tree.so"
            ),
        ),
    ],
)


def tree_of(leaves, kernel=None) -> SumTree:
    tree = SumTree(len(leaves), kernel)
    tree.set(np.arange(len(leaves)), np.array(leaves, float))
    tree.check_valid()
    return tree


def naive_query(leaves: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Returns the first slot at which the cumulative sum exceeds the point."""
    return (np.cumsum(leaves)[None] <= points[:, None]).sum(1)


@ENGINES
def test_frozen_vectors(kernel) -> None:
    for case in VECTORS:
        tree = tree_of(case["leaves"], kernel)
        assert tree.root == sum(case["leaves"])
        assert tree.leaves.tolist() == case["leaves"]
        for point, slot in case.get("queries", []):
            assert tree.query(np.array([point])).tolist() == [slot]


changes = st.lists(
    st.tuples(st.integers(0, 999), st.integers(0, 5) | st.integers(0, 10**6)), min_size=1, max_size=40
)


@ENGINES
@given(capacity=st.integers(1, 70), calls=st.lists(changes, max_size=5), seed=st.integers(0, 9))
def test_it_is_the_naive_one(kernel, capacity: int, calls: list, seed: int) -> None:
    """Uses integers, so that sums are exact in every order."""
    tree, leaves = SumTree(capacity, kernel), np.zeros(capacity)
    for call in calls:
        slots, values = (np.array(column) for column in zip(*call, strict=True))
        slots %= capacity
        tree.set(slots, values)
        for slot, value in zip(slots, values, strict=True):
            leaves[slot] = value
        tree.check_valid()
    assert tree.leaves.tolist() == leaves.tolist()
    assert tree.root == leaves.sum()
    if tree.root:
        points = np.random.default_rng(seed).random(50) * tree.root
        points = np.concatenate([points, np.cumsum(leaves)[np.cumsum(leaves) < tree.root], [0.0]])
        asked = points.copy()
        assert tree.query(asked).tolist() == naive_query(leaves, points).tolist()
        assert asked.tolist() == points.tolist(), "a query leaves its points alone"


@pytest.mark.skipif(
    KERNEL is None, reason="the trainer was installed without a C compiler: no libsum_tree.so"
)
@given(capacity=st.integers(1, 3000), seed=st.integers(0, 1000))
def test_compiled_or_not_it_is_the_same_to_the_bit(capacity: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    trees = SumTree(capacity, None), SumTree(capacity, KERNEL)
    for count in random.integers(0, 600, 4):
        slots = random.integers(0, capacity, count)
        values = 10 ** random.uniform(-6, 6, count) * (random.random(count) < 0.8)
        for tree in trees:
            tree.set(slots, values)
        points = random.random(count) * trees[0].root
        assert trees[0]._nodes.tobytes() == trees[1]._nodes.tobytes()
        assert trees[0].query(points).tobytes() == trees[1].query(points).tobytes()


@ENGINES
@given(
    leaves=st.lists(
        st.just(0.0) | st.floats(1e-6, 1e6) | st.sampled_from([5e-324, 1e-300, 1.0]), max_size=40
    ),
    somewhere=st.lists(st.floats(0, 1), max_size=10),
)
def test_at_no_point_does_rounding_give_an_empty_leaf(kernel, leaves: list, somewhere: list) -> None:
    leaves = np.array([*leaves, 1e-6])
    tree = tree_of(leaves, kernel)
    borders = np.minimum(np.concatenate([[0, tree.root], np.cumsum(leaves)]), tree.root)
    points = np.concatenate(
        [borders, np.nextafter(borders, 0), np.nextafter(borders, tree.root), np.array(somewhere) * tree.root]
    )
    slots = tree.query(points)
    assert slots.min() >= 0
    assert slots.max() < len(leaves)
    assert (leaves[slots] > 0).all(), f"{leaves[slots]} at {points}"
    # The result is the slot of the point, except for rounding errors of sums.
    upper, slack = np.cumsum(leaves), 1e-12 * tree.root
    assert (points <= upper[slots] + slack).all()
    assert (points >= upper[slots] - leaves[slots] - slack).all()


@ENGINES
@pytest.mark.parametrize("slot", [-1, 5, 2**40])
def test_a_slot_that_there_is_not_changes_nothing(kernel, slot: int) -> None:
    tree = tree_of([1, 2, 3, 4, 5], kernel)
    with pytest.raises(IndexError, match="0 to 4"):
        tree.set(np.array([0, slot]), np.array([7.0, 7.0]))
    with pytest.raises(ValueError, match="1 values for 2 slots"):
        tree.set(np.array([0, 1]), np.array([7.0]))
    assert tree.leaves.tolist() == [1, 2, 3, 4, 5]
    tree.check_valid()


@ENGINES
def test_other_types_and_layouts_of_numbers_are_understood(kernel) -> None:
    tree = SumTree(4, kernel)
    tree.set(np.arange(8, dtype=np.int32)[::2] // 2, np.array([[1, 2], [3, 4]], np.float32).reshape(-1))
    assert tree.leaves.tolist() == [1, 2, 3, 4]
    assert tree.query(np.array([0, 9, 1, 9], np.float32)[::2]).tolist() == [0, 1]
    assert tree.query(np.empty(0)).tolist() == []
    tree.set(np.empty(0, np.int64), np.empty(0))
    assert tree.root == 10


def test_clearing_sets_all_leaves_to_0() -> None:
    tree = tree_of([3, 1, 0, 2.5, 1e-9])
    tree.clear()
    tree.check_valid()
    assert tree.root == 0
    assert tree.leaves.tolist() == [0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda nodes: nodes.__setitem__(8, -1.0), "negative"),
        (lambda nodes: nodes.__setitem__(8, np.nan), "not finite"),
        (lambda nodes: nodes.__setitem__(15, 1.0), "beyond the capacity"),
        (lambda nodes: nodes.__setitem__(2, 99.0), "not the sum"),
    ],
)
def test_what_is_invalid_is_said(spoil, complaint: str) -> None:
    tree = tree_of([1, 2, 3, 4, 5])
    spoil(tree._nodes)
    with pytest.raises(AssertionError, match=complaint):
        tree.check_valid()
