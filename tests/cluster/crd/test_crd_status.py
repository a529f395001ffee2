"""The API server keeps every field of a status."""

from __future__ import annotations

from datetime import UTC, datetime

from random_jobs import SHORTEST, job
from rltraining_api.autoscale import AutoscaleSearch, AutoscaleStatus, AutoscaleWindow
from rltraining_api.curve import CURVE_POINTS_MAX, CurvePoint
from rltraining_api.evaluation import EvaluationResult, EvaluationStatus
from rltraining_api.manifest import read_job
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
from verdicts import Server, complaints

TIME = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


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
        autoscale=AutoscaleStatus(
            target=2,
            state="Overridden",
            message="spec.sampler.replicas was changed",
            observed_replicas=2,
            observed_min=1,
            observed_max=3,
            window=AutoscaleWindow(since=TIME, ready=1, reports=2, wait_percent=50.0, steps_per_second=1e9),
            search=AutoscaleSearch(
                before=1, steps_per_second_needed=9.5, too_few=1, enough=4, learned=TIME, steps_per_second=0.5
            ),
        ),
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
        bottleneck="Learner and samplers are balanced",
        preset="Classic",
        evaluation=EvaluationStatus(
            count=2**53,
            restarts=1,
            without_improvement=1,
            last=EvaluationResult(environment_steps=2**53, episodes=10, mean_return=-1e300, std_return=0.0),
            best=EvaluationResult(environment_steps=1, episodes=10, mean_return=1e300),
            best_policy_uri="file:///c",
        ),
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
    suspended = SHORTEST | {"runPolicy": {"managedBy": "example.com/absent"}}
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
