"""A learner's starting point, and the seeds of samplers."""

from __future__ import annotations

from pathlib import Path

import pytest
from rltraining_trainer.checkpoint import CheckpointStore
from rltraining_trainer.errors import BadConfiguration
from rltraining_trainer.roles.seeds import sampler_seed
from rltraining_trainer.roles.start import find_start


@pytest.fixture
def own(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(str(tmp_path / "own"), keep=3)


@pytest.fixture
def other(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(str(tmp_path / "other"), keep=3)


def damage(uri: str) -> None:
    (Path(uri.removeprefix("file://")) / "state.pt").write_bytes(b"rubbish")


def test_without_checkpoints_it_begins_at_nothing(own: CheckpointStore) -> None:
    start = find_start(own, None)

    assert (start.state, start.uri, start.warnings) == (None, "", ())


def test_a_first_start_begins_at_resume_from(
    own: CheckpointStore, other: CheckpointStore, tmp_path: Path
) -> None:
    saved = other.save(5, {"who": "other"})

    for resume_from in (str(tmp_path / "other"), saved.uri):
        start = find_start(own, resume_from)
        assert start.state == {"who": "other"}
        assert start.uri == saved.uri


def test_a_restart_goes_on_from_its_own(own: CheckpointStore, other: CheckpointStore, tmp_path: Path) -> None:
    other.save(500, {"who": "other"})
    saved = own.save(5, {"who": "own"})

    start = find_start(own, str(tmp_path / "other"))

    assert (start.state, start.uri, start.warnings) == ({"who": "own"}, saved.uri, ())


def test_a_damaged_one_is_passed_over_with_a_warning(own: CheckpointStore) -> None:
    own.save(5, {"step": 5})
    damage(own.save(6, {"step": 6}).uri)

    start = find_start(own, None)

    assert start.state == {"step": 5}
    (warning,) = start.warnings
    assert warning.reason == "CheckpointSkipped"
    assert "step-000000000006 was skipped: " in warning.message


def test_when_all_its_own_are_damaged_it_says_so_and_begins_at_resume_from(
    own: CheckpointStore, other: CheckpointStore, tmp_path: Path
) -> None:
    damage(own.save(6, {"step": 6}).uri)
    other.save(4, {"step": 4})
    damage(other.save(5, {"step": 5}).uri)

    start = find_start(own, str(tmp_path / "other"))

    assert start.state == {"step": 4}
    assert ["/own/" in warning.message for warning in start.warnings] == [True, False]


def test_nothing_at_resume_from_is_a_bad_configuration(own: CheckpointStore, tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match=r"there is no checkpoint to resume from at .*/nothing"):
        find_start(own, str(tmp_path / "nothing"))


def test_no_two_samplers_live_the_same_episodes_nor_one_after_its_restart() -> None:
    seeds = {
        sampler_seed(seed, index, version)
        for seed in range(5)
        for index in range(20)
        for version in (1, 2, 900)
    }

    assert len(seeds) == 300
    assert all(0 <= seed < 2**31 for seed in seeds), "simulators in C take no more"
    assert sampler_seed(1, 2, 3) == sampler_seed(1, 2, 3)
