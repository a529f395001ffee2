"""`rltrain report` of jobs in a cluster, from the data in the API."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from command_line import refused, succeeded
from fake_api import FakeApi, failure
from report_page import Page
from rltraining_trainer.errors import BadConfiguration
from rltraining_trainer.policy import Policy

pytestmark = pytest.mark.usefixtures("cluster")
CURVE = [{"environmentSteps": n * 1000, "seconds": n * 2, "meanReturn": n} for n in range(5)]


@pytest.fixture
def trained(api: FakeApi, job: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    """A job that has succeeded. The page is written into an empty folder."""
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
        "Policy lag, terms of the loss and the counters are not in the cluster's API",
        "A cluster forgets Events",
        "Disruptednode 0 was drained (2 times)",
        "Complete: TrueLearnersSucceeded: enough",
        "The time is when the status last changed",
        "10 inserted = 3 evicted + 6 size + 1 lost",
        "job cartpole in namespace default",
        "over after 03:00",
    ):
        assert page.has(words), words
    assert not page.has("node 1 was drained")
    assert not page.has("a dotted upright line"), "the API does not tell where that was"


def test_a_folder_of_code_does_not_hide_a_job_of_its_name(trained: FakeApi, tmp_path: Path) -> None:
    trained.status(curve=[])
    missing = "there is no job nope in namespace default"
    assert refused("report", "nope") == missing
    for name in ("cartpole", "nope"):
        (tmp_path / name).mkdir()
    assert succeeded("report", "cartpole").startswith("cartpole-report.html: ")
    assert refused("report", "nope") == f"nope: holds no run; as the name of a job in a cluster: {missing}"


def test_the_page_names_what_could_not_be_read(trained: FakeApi) -> None:
    trained.status(policyUri="file:///output/policy", curve=[])
    trained.fail("GET", "events", failure(403, "Forbidden", "events is forbidden"))
    page = page_of()
    assert page.has("Events could not be read: ")
    assert page.has("Complete: True")
    assert page.has("The policy is stored at file:///output/policy, which cannot be reached from here.")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The URIs that the command opens as a policy."""
    opened: list[str] = []
    monkeypatch.setattr(Policy, "load", lambda uri, **_: opened.append(uri) or pytest.fail(f"{uri} was read"))
    return opened


STORE = "s3://bucket/jobs"


def stores(api: FakeApi, uri: str | None) -> None:
    """Sets `spec.checkpoint.uri` of the job."""
    job = api.job("cartpole")
    spec = {**job["spec"], "checkpoint": {"uri": uri} if uri else {}}
    api.put("rltrainingjobs", {**job, "spec": spec})


@pytest.mark.parametrize("store", [STORE, None])
def test_a_learner_does_not_choose_what_the_report_reads(
    trained: FakeApi, policy: Path, tmp_path: Path, store: str | None, asked: list[str]
) -> None:
    """The status can contain any URI: an older operator, or one from another source, may have copied it unchecked."""
    shutil.copytree(policy, tmp_path / "policy")
    stores(trained, store)
    own = "the job's checkpoint store s3://bucket/jobs/cartpole" if store else "the learner's pod"
    for place in (
        "http://169.254.169.254/latest/meta-data",
        f"local://{tmp_path}/policy",
        "simplecache::s3://bucket/jobs/cartpole/policy",
        "s3://bucket/jobs/cartpole/../../../other/policy",
        f"{tmp_path}/policy",
    ):
        trained.status(policyUri=place, curve=[])
        assert page_of().has(f"status.policyUri is {place}, which is not in {own}: it was not read.")
    assert asked == []


def test_the_policy_is_read_where_the_spec_says_that_it_is(
    trained: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def load(uri: str, **_: Any) -> Policy:
        opened.append(uri)
        raise BadConfiguration("there is no policy")

    monkeypatch.setattr(Policy, "load", load)
    for store, written in (
        ("s3a://bucket/jobs/", "s3://bucket/jobs/cartpole/policy"),
        ("abfss://jobs@account.dfs.core.windows.net/a", "abfs://jobs/a/cartpole/policy"),
    ):
        trained.status(policyUri=written, curve=[])
        stores(trained, store)
        assert page_of().has("there is no policy")
        assert opened.pop() == f"{store.rstrip('/')}/cartpole/policy"


@pytest.mark.parametrize("store", ["http://169.254.169.254/x", "local:///x", "memory://x", "sftp://host/x"])
def test_a_store_that_other_machines_do_not_reach_is_not_read(
    trained: FakeApi, store: str, asked: list[str]
) -> None:
    """The author of the job chose the store, and may be someone else than the user of `rltrain report`."""
    stores(trained, store)
    for written in (f"{store}/cartpole/policy", store):
        trained.status(policyUri=written, curve=[])
        page = page_of()
        assert page.has("which cannot be reached from here") or page.has("it was not read")
    assert asked == []


def test_a_job_that_has_just_begun_has_a_page(job: Any, tmp_path: Path) -> None:
    succeeded("report", "cartpole", "-n", "default", "-o", tmp_path / "page.html")
    page = Page(tmp_path / "page.html")
    assert page.has("cartpole Pending")
    assert page.has("Nothing was measured")
