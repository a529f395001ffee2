"""`rltrain report` of jobs in a cluster, from what its API knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command_line import refused, succeeded
from fake_api import FakeApi, failure
from report_page import Page

pytestmark = pytest.mark.usefixtures("cluster")
CURVE = [{"environmentSteps": n * 1000, "seconds": n * 2, "meanReturn": n} for n in range(5)]


@pytest.fixture
def trained(api: FakeApi, job: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    """A job that has succeeded; the page is written into an empty folder."""
    monkeypatch.chdir(tmp_path)
    condition = {"type": "Complete", "status": "True", "reason": "LearnersSucceeded", "message": "enough"}
    api.finish(
        startTime="2026-11-21T10:00:00Z",
        completionTime="2026-11-21T10:03:00Z",
        message="stop.environmentSteps is met",
        curve=CURVE,
        progress={"environmentSteps": 4000, "meanReturn": 4.0},
        replay={"inserted": 10, "evicted": 3, "size": 6, "lost": 1},
        conditions=[{**condition, "lastTransitionTime": "2026-11-21T10:03:00Z"}],
    )
    for i, uid in enumerate((job["metadata"]["uid"], "of an earlier job of this name")):
        told = {"type": "Warning", "reason": "Disrupted", "message": f"node {i} was drained", "count": 2}
        api.event(f"e{i}", uid, lastTimestamp="2026-11-21T10:01:00Z", **told)
    return api


def page_of() -> Page:
    succeeded("report", "cartpole")
    return Page(Path("cartpole-report.html"))


def test_a_job_is_told_from_the_api_alone(trained: FakeApi) -> None:
    page = page_of()
    assert page.titles == ["Mean return over steps", "Mean return over time", "Environment steps a second"]
    for words in (
        "cartpole Succeeded stop.environmentSteps is met",
        "Policy lag, terms of the loss and the accounts are not in the cluster's API",
        "A cluster forgets Events",
        "Disruptednode 0 was drained (2 times)",
        "Complete: TrueLearnersSucceeded: enough",
        "A condition stands at its last turn",
        "10 inserted = 3 evicted + 6 size + 1 lost",
        "job cartpole in namespace default",
        "over after 03:00",
    ):
        assert page.has(words), words
    assert not page.has("node 1 was drained")
    assert not page.has("a dotted upright line"), "the API does not tell where that was"


@pytest.mark.usefixtures("trained")
def test_a_folder_of_code_does_not_hide_a_job_of_its_name(tmp_path: Path) -> None:
    missing = "there is no job nope in namespace default"
    assert refused("report", "nope") == missing
    for name in ("cartpole", "nope"):
        (tmp_path / name).mkdir()
    assert succeeded("report", "cartpole").startswith("cartpole-report.html: ")
    assert refused("report", "nope") == f"nope: holds no run; as the name of a job in a cluster: {missing}"


def test_the_page_names_what_could_not_be_read(trained: FakeApi) -> None:
    trained.status(policyUri="file:///output/policy")
    trained.fail("GET", "events", failure(403, "Forbidden", "events is forbidden"))
    page = page_of()
    assert page.has("Events could not be read: ")
    assert page.has("Complete: True")
    assert page.has("The policy lies at file:///output/policy, which cannot be reached from here.")


def test_a_job_that_has_just_begun_has_a_page(job: Any, tmp_path: Path) -> None:
    succeeded("report", "cartpole", "-n", "default", "-o", tmp_path / "page.html")
    page = Page(tmp_path / "page.html")
    assert page.has("cartpole Pending")
    assert page.has("Nothing was measured")
