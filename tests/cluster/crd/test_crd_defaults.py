"""What the API server fills in and keeps is what the models fill in and write."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import yaml
from bounds import KINDS
from rltraining_api.curve import CURVE_POINTS_MAX, CurvePoint
from rltraining_api.manifest import parse_job, read_job
from rltraining_api.names import KIND
from rltraining_api.status import (
    CheckpointStatus,
    Condition,
    LedgerEntry,
    Progress,
    ReplayStatus,
    RoleStatus,
    SamplerStatus,
    Status,
)
from schema_walk import SHORTEST, job, nodes
from verdicts import Server, complaints, of_the_models

EXAMPLES = Path(__file__).parents[3] / "examples"
TIME = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_the_shortest_job_and_the_examples_are_stored_as_the_models_write_them(server: Server) -> None:
    documents = [each for path in EXAMPLES.glob("*.yaml") for each in yaml.safe_load_all(path.read_text())]
    jobs = [job(SHORTEST), *(each for each in documents if each and each["kind"] == KIND)]
    assert len(jobs) > 1
    for manifest, stored in zip(jobs, server.store(jobs), strict=True):
        assert stored["spec"] == parse_job(manifest).to_dict()["spec"]


def test_whatever_is_accepted_is_stored_as_the_models_write_it(server: Server) -> None:
    """Every field at its bounds, alone."""
    wanted = [case for node in nodes() for kind in KINDS.values() for case in kind(node)]
    wanted = [case for case in wanted if case.accepted and not of_the_models(case.manifest)]
    for case, stored in zip(wanted, server.store(case.manifest for case in wanted), strict=True):
        assert stored["spec"] == parse_job(case.manifest).to_dict()["spec"], f"{case.field} ({case.what})"


def test_a_whole_status_is_kept(server: Server) -> None:
    role = {"replicas": 2, "ready": 1, "restarts": 3, "summary": "1/2", "indices": "0-1"}
    status = Status(
        phase="Running",
        message="1 of 2 samplers is ready",
        algorithm="impala",
        conditions=(
            Condition(
                type="Ready",
                status="False",
                reason="SamplersMissing",
                message="x" * 32_768,
                observed_generation=1,
                last_transition_time=TIME,
            ),
        ),
        learner=RoleStatus(**role),
        sampler=SamplerStatus(**role, selector="a=b"),
        replay_pods=RoleStatus(**role),
        restarts=2**31 - 1,
        failures=1,
        disruptions=1,
        progress=Progress(environment_steps=2**53, mean_return=-1.5, steps_per_second=1e300, percent=50.0),
        curve=(CurvePoint(environment_steps=2**53, seconds=1e9, mean_return=-1e300),) * CURVE_POINTS_MAX,
        replay=ReplayStatus(shards=2, size=2, inserted=2**53, lost=1, replay_ratio=0.8, sample_age=1.5),
        progress_time=TIME,
        report_time=TIME,
        warnings=("CheckpointSkipped: the disk is full",),
        checkpoint=CheckpointStatus(uri="file:///a", step=1, time=TIME),
        policy_uri="file:///b",
        start_time=TIME,
        completion_time=TIME,
        observed_generation=1,
        ledger=(
            LedgerEntry(pod="a-sampler-0", uid="u", restarts=1, ended=True, disruptions=1, steps=1),
            LedgerEntry(pod="a-sampler-1", uid="v"),
        ),
    )
    unset = {name for name in Status.model_fields if name not in status.model_fields_set}
    assert not unset, f"give these a value here too: {unset}"
    suspended = SHORTEST | {"runPolicy": {"managedBy": "example.com/nobody"}}
    made = server.request("POST", server.jobs, job(suspended, "reported"))
    path = f"{server.jobs}/reported"
    try:
        kept = server.request(
            "PUT", f"{path}/status", made | {"status": status.to_dict()}, fieldValidation="Strict"
        )
        assert not complaints(kept), complaints(kept)
        assert read_job(kept).status == status
    finally:
        server.request("DELETE", path)
