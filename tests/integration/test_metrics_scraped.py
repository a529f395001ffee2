"""A real Prometheus scrapes the operator and runs of each dataflow: every query of the dashboard finds something."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from docs_pages import Block, blocks
from exported_metrics import of_members
from operator_process import Operator, operating
from prometheus_server import Prometheus, programs, prometheus
from rltraining_api.job import RLTrainingJob
from rltraining_trainer.metrics.exposition import LOSS_PREFIX
from small_jobs import gradient_job, replay_job, small_job
from training import KeptWarm, training

from tests.unit.charts.chart_files import CHART, alerts, queries
from tests.unit.operator.kube.fake_api_server import Fault

OPERATOR, PODS = "rltraining-operator", "rltraining-jobs"
"""The scrape jobs, as documented on the metrics page."""
RULES = CHART / "files" / "alerts.yaml"
RUNS = {
    "unrolls": small_job(
        learner={"replicas": 2},
        sampler={"replicas": 2},
        environment={"id": "CartPole-v1", "numEnvs": 8},
        evaluation={"everySteps": 1000, "episodes": 1},
    ),
    "replay": replay_job(replay={"minimum": 100, "placement": "Dedicated"}),
    "gradients": gradient_job("a3c", learner={"replicas": 2}),
}
MEMBERS = 4
"""Number of members of each run."""
LATELY = 1.0
"""Seconds for which all members must have been scraped."""
NOT_TOLD = {"time", "run", "learner/longestWait"}
"""Fields of the curves' points that are not exported one to one.

They are not numbers of a run, or are exported as a sum (the longest wait since the last point).
"""


@dataclass
class Seen:
    """The scraped Prometheus, and a moment in the middle of each run."""

    server: Prometheus
    moments: dict[str, float] = field(default_factory=dict)
    points: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The numbers of each run's curves."""

    def finds(self, query: str) -> bool:
        """Whether a query of the dashboard finds anything in any of the runs, lately as they were in the middle of it."""
        for run, moment in self.moments.items():
            asked = {
                "$__rate_interval": "30s",
                "$job": OPERATOR,
                "$namespace": "default",
                "$run": run,
            }
            expression = query
            for variable, value in asked.items():
                expression = expression.replace(variable, value)
            if self.server.within(expression, moment - LATELY, moment):
                return True
        return False


@pytest.fixture(scope="module")
def seen(warm: tuple[asyncio.Runner, KeptWarm], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    runner, runtime = warm
    folder = tmp_path_factory.mktemp("scraped")
    (scraping,) = [block.text for block in blocks("yaml") if "scrape_configs" in block.text]
    with prometheus(folder, yaml.safe_load(scraping), RULES) as server:
        seen = Seen(server)

        async def happen() -> None:
            async with operating(folder) as operator:
                server.scrape(OPERATOR, {"rltraining-operator-0": operator.port}, "rltraining-system")
                await _go_through_everything(operator)

                async def look(name: str, job: RLTrainingJob) -> None:
                    async with training(folder / name, runtime, job) as run:
                        await run.until_ready()
                        ports = {pod.name: run.port(pod.name) for pod in run.cluster.pods(run.key)}
                        server.scrape(PODS, ports, "default", rltraining_dev_job_name=name)
                        seen.moments[name] = await asyncio.to_thread(server.until, _in_full_swing(name))
                        seen.points[name] = {number: 0 for point in run.points for number in point}

                await asyncio.gather(*(look(name, job) for name, job in RUNS.items()))

        runner.run(happen())
        yield seen


async def _go_through_everything(operator: Operator) -> None:
    """Lets the operator count everything: a running job, a failed job and a failed request."""
    operator.server.faults.append(Fault("POST", "/pods", status=500))
    for job in ("runs", "fails"):
        await operator.submit(job)
        for role in ("learner", "sampler"):
            await operator.tell(
                f"{job}-{role}-0", {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, ready=True
            )
    await operator.until(lambda: operator.phase("runs") == operator.phase("fails") == "Running")
    ended = {"exitCode": 64, "reason": "Error", "message": "no such environment"}
    await operator.tell("fails-learner-0", {"terminated": ended}, ready=False)
    await operator.until(lambda: operator.phase("fails") == "Failed")


def _in_full_swing(run: str) -> str:
    """Returns a query that finds something once the run meets all of the following conditions.

    Every member was scraped three times, and the learner twice since the run began. For longer than the
    tests look back, no scrape has failed, and the operator has led and counted its job as Running. On a
    busy machine the operator may have to release the lease meanwhile.
    """
    of_it = f'{{training_job="{run}"}}'
    members = f"count(count_over_time(rltraining_member_info{of_it}[1m]) > 2) == {MEMBERS}"
    counts = [
        f"rate(rltraining_learner_{what}_total{of_it}[1m]) > 0" for what in ("updates", "environment_steps")
    ]
    gauges = [f"rltraining_learner_{what}{of_it}" for what in ("mean_return", "loss", "policy_lag")]
    if RUNS[run].spec.evaluation is not None:
        gauges.append(f"rltraining_evaluation_return{of_it}")
    if RUNS[run].spec.algorithm.name == "dqnApex":
        gauges.append(f"rltraining_shard_transitions{of_it}")
    window = f"[{LATELY + 1:.0f}s]"
    healthy = [
        f'min_over_time(up{{job="{OPERATOR}"}}{window}) == 1',
        f'min_over_time(rltraining_leader{{job="{OPERATOR}"}}{window}) == 1',
        # A scrape that fails leaves a hole until the next one: at every moment there was a value.
        f'count_over_time((max(rltraining_jobs{{job="{OPERATOR}",phase="Running"}}) == 1)[{LATELY + 1:.0f}s:50ms])'
        f" >= {(LATELY + 1) / 0.05:.0f}",
        f"count(min_over_time(up{of_it}{window}) == 1) == {MEMBERS}",
    ]
    return " and on () ".join(f"({part})" for part in (*healthy, members, *counts, *gauges))


def test_every_query_of_the_dashboard_finds_something(seen: Seen) -> None:
    drawn = {(where, query) for where, query in queries() if where.startswith("panel")}
    empty = {where: query for where, query in sorted(drawn) if not seen.finds(query)}
    assert not empty, json.dumps(empty, indent=1)


@pytest.mark.parametrize("example", blocks("promql"), ids=str)
def test_a_query_in_a_page_finds_something(seen: Seen, example: Block) -> None:
    assert seen.finds(example.text.replace('"cartpole"', '"$run"'))


def test_every_choice_of_the_dashboard_has_something_to_choose_from(seen: Seen) -> None:
    assert seen.server.get("label/training_job/values") == sorted(RUNS)
    assert seen.finds('rltraining_leader{job="$job"}')
    assert seen.finds('rltraining_jobs{job="$job"}')


def test_no_alert_goes_off_but_of_the_job_whose_pods_are_only_said_to_run(seen: Seen) -> None:
    rules = [rule for group in seen.server.get("rules")["groups"] for rule in group["rules"]]
    assert {rule["name"] for rule in rules} == {rule["alert"] for rule in alerts()}
    assert {rule["health"] for rule in rules} == {"ok"}, [rule.get("lastError") for rule in rules]
    whole = int(LATELY / 0.25) + 1
    lasting = {
        rule["alert"]
        for rule in alerts()
        for moment in seen.moments.values()
        if len(seen.server.within(rule["expr"], moment - LATELY, moment))
        == whole  # one late scrape is allowed
    }
    assert lasting == {"RLTrainingJobsStalled"}


def test_every_number_of_the_curves_is_told_to_prometheus(seen: Seen) -> None:
    drawn = {
        number for point in seen.points.values() for number in point if not number.startswith(LOSS_PREFIX)
    }
    told = {
        curve for one in of_members().values() for curve in one.curves if not curve.startswith(LOSS_PREFIX)
    }
    assert drawn - NOT_TOLD == told


def test_accounts_add_up_in_every_scrape(seen: Seen) -> None:
    parts = "".join(f" - rltraining_dataflow_{part}" for part in ("used_total", "dropped_total", "queued"))
    account = f"rltraining_dataflow_pushed_total{parts}"
    for item in ("unrolls", "gradients"):
        found = seen.server.query(f"max_over_time(abs({account})[1m:250ms])", seen.moments[item])
        assert (item, "0") in [(each["metric"]["item"], each["value"][1]) for each in found], found


def test_the_alert_of_a_run_that_learns_nothing_goes_off_for_it_alone(tmp_path: Path) -> None:
    def learner(job: str, steps: str) -> list[dict[str, str]]:
        labels = f'namespace="team",training_job="{job}"'
        info = f'rltraining_member_info{{{labels},role="learner",algorithm="impala"}}'
        counted = f"rltraining_learner_environment_steps_total{{{labels}}}"
        return [{"series": info, "values": "1x60"}, {"series": counted, "values": steps}]

    stalled = {"severity": "warning", "namespace": "team", "training_job": "stalled"}
    expected = [{"exp_labels": stalled}]
    rule = next(rule for rule in alerts() if rule["alert"] == "RLTrainingRunStalled")
    for each in expected:
        each["exp_annotations"] = {
            key: text.replace("{{ $labels.training_job }}", "stalled").replace(
                "{{ $labels.namespace }}", "team"
            )
            for key, text in rule["annotations"].items()
        }
    series = learner("learns", "0+100x60") + learner("stalled", "0+100x10 1000x50")
    asked = [
        {"eval_time": "20m", "alertname": rule["alert"], "exp_alerts": []},
        {"eval_time": "50m", "alertname": rule["alert"], "exp_alerts": expected},
    ]
    test = {
        "rule_files": [str(RULES)],
        "tests": [{"interval": "1m", "input_series": series, "alert_rule_test": asked}],
    }
    (tmp_path / "test.yml").write_text(json.dumps(test))
    _promtool("test", "rules", tmp_path / "test.yml")


def _promtool(*arguments: str | Path) -> None:
    done = subprocess.run([programs().promtool, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
