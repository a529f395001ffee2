"""The file with the hashes of the parameters."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from rltraining_trainer.metrics.hash_chain import HASHES, HashChain


def lines(folder: Path) -> list[tuple[int, str]]:
    found = [json.loads(line) for line in (folder / HASHES).read_text().splitlines()]
    assert [line["environmentSteps"] for line in found] == [10 * line["update"] for line in found]
    return [(line["update"], line["parametersHash"]) for line in found]


def add(chain: HashChain, *updates: int) -> None:
    for update in updates:
        chain.add(torch.full((3,), float(update)), update, 10 * update)


def test_every_nth_and_the_last_hash_are_written(tmp_path: Path) -> None:
    chain = HashChain(tmp_path, 2)
    add(chain, 1, 2, 3, 4, 5)
    chain.finish()
    assert [update for update, _ in lines(tmp_path)] == [2, 4, 5]


def test_each_hash_depends_on_all_parameters_before(tmp_path: Path) -> None:
    one, other = HashChain(tmp_path / "one", 1), HashChain(tmp_path / "other", 1)
    add(one, 1, 2)
    other.add(torch.zeros(3), 1, 10)
    add(other, 2)
    assert not set(lines(tmp_path / "one")) & set(lines(tmp_path / "other"))


def test_a_resumed_chain_replaces_later_lines_with_the_same(tmp_path: Path) -> None:
    chain = HashChain(tmp_path, 1)
    add(chain, 1, 2)
    state = chain.get_state()
    add(chain, 3, 4)
    before = lines(tmp_path)
    resumed = HashChain(tmp_path, 1)
    resumed.set_state(state)
    add(resumed, 3)
    resumed.finish()
    assert lines(tmp_path) == before[:3]


def test_a_run_without_a_place_for_the_file_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    chain = HashChain(tmp_path / "file", 1)
    add(chain, 1, 2)
    chain.finish()
