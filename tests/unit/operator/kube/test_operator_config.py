"""Errors in a configuration file are reported in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from rltraining_operator.kube.config import ConfigError, LeaderElectionConfig, load_config

WRONG = {
    "a leader that steps down too late": "{leaseSeconds: 5}",
    "as late as another may lead": "{leaseSeconds: 7}",
    "a single attempt": "{retrySeconds: 7}",
    "a renewal that is never tried": "{renewSeconds: 1}",
}


@pytest.mark.parametrize("election", WRONG.values(), ids=WRONG)
def test_a_lease_that_two_could_hold_or_none_could_renew_is_refused(election: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"leaderElection: {election}\n")
    with pytest.raises(ConfigError) as refused:
        load_config(path)
    sentence = str(refused.value)
    assert sentence.startswith(f"{path}: leaderElection: ")
    assert all(field in sentence for field in ("leaseSeconds", "renewSeconds", "retrySeconds"))


def test_the_defaults_and_what_only_just_holds_are_taken() -> None:
    LeaderElectionConfig()
    LeaderElectionConfig(lease_seconds=3, renew_seconds=2, retry_seconds=1)
