"""When the operator requests reports from learners, and how long it uses their answers."""

from __future__ import annotations

import asyncio

import pytest
from rltraining_api.contract import LearnerReport
from rltraining_operator.cluster import Key
from rltraining_operator.kube import reports as reports_module
from rltraining_operator.kube.reports import OLD_SECONDS, Reports
from rltraining_operator.observe.answers import BadReport
from rltraining_operator.observe.observed import Pod

POD = Pod(
    {
        "metadata": {
            "name": "demo-learner-0",
            "namespace": "default",
            "uid": "p",
            "ownerReferences": [{"name": "demo"}],
        }
    }
)


class Learner:
    """Answers the operator with `steps`, or not at all if None. Records the jobs that are marked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: int | BadReport | None = 0
        self.asked = 0
        self.marked: list[Key] = []
        self.reports = Reports()
        self.reports.mark = self.marked.append
        monkeypatch.setattr(reports_module, "_ask", self._answer)

    async def _answer(self, pod: Pod, token: str) -> LearnerReport | BadReport | None:
        self.asked += 1
        await asyncio.sleep(0.1)
        if self.steps is None or isinstance(self.steps, BadReport):
            return self.steps
        return LearnerReport.model_validate({"progress": {"environmentSteps": self.steps}})

    @property
    def newest(self) -> int | str | BadReport | None:
        report = self.reports.newest(POD, "token")
        return report.progress.environment_steps if isinstance(report, LearnerReport) else report


@pytest.fixture
def learner(monkeypatch: pytest.MonkeyPatch) -> Learner:
    return Learner(monkeypatch)


async def test_the_pass_that_an_answer_brings_about_uses_it_however_late_it_comes(learner: Learner) -> None:
    """If the pass requested the report again instead, each answer would be too old by the next pass."""
    for due in range(1, 4):
        learner.steps = due
        assert learner.newest == (due - 1 or "awaited"), "an answer that no pass has seen has grown old"
        await asyncio.sleep(2.0)  # other jobs are handled first
        assert (learner.newest, learner.asked) == (due, due), "the newest answer"
        await asyncio.sleep(8.0)
    assert learner.marked == [Key("default", "demo")] * 3


async def test_what_a_learner_said_long_ago_is_not_used(learner: Learner) -> None:
    """An operator that was paused or leads again would overwrite newer values from another operator."""
    for turn, steps in enumerate((1000, 1000, 1500), 1):  # an equal second answer is also new
        learner.steps = steps
        assert learner.newest == "awaited"
        await asyncio.sleep(0.2)
        assert (learner.newest, len(learner.marked)) == (steps, turn)
        await asyncio.sleep(OLD_SECONDS + 1)


async def test_a_learner_is_awaited_until_it_has_failed_to_answer_once(learner: Learner) -> None:
    learner.steps = None
    assert learner.newest == "awaited"
    assert learner.newest == "awaited", "still being asked"
    await asyncio.sleep(0.2)
    assert learner.newest is None
    await asyncio.sleep(10.0)
    assert learner.newest is None, "asked again: known to be silent"
    await asyncio.sleep(0.2)
    assert (learner.asked, learner.marked) == (2, [Key("default", "demo")]), (
        "once: the next pass will report it"
    )


async def test_a_learner_that_misreports_is_asked_less_and_less_often_until_it_reports(
    learner: Learner, caplog: pytest.LogCaptureFixture
) -> None:
    """Passes are more frequent than requests, for example because the job's pods start and end."""
    lie = learner.steps = BadReport("340000 errors, the first: conditions.0.type: Field required")

    async def passes(count: int) -> int:
        """Runs a pass every ten seconds. Returns the number of requests in that time."""
        before = learner.asked
        for _ in range(count):
            assert learner.newest in (lie, 7, "awaited")
            await asyncio.sleep(10.0)
        return learner.asked - before

    assert await passes(2) == 1
    assert [await passes(16) for _ in range(5)] == [3, 0, 1, 0, 1], "after 20, 40, 80, 160 and then 320 s"
    assert learner.newest == lie, "not awaited, while it is known that it misreports"
    assert len(learner.marked) == 1, "no pass is brought about by another lie"
    assert len(caplog.messages) == learner.asked
    assert all(len(line) < 200 for line in caplog.messages)

    learner.steps = 7
    await passes(33)
    assert learner.newest == 7
    learner.steps = lie
    assert await passes(5) == 2, "a good answer has ended the row"
