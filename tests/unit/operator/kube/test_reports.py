"""When learners are asked, and that what they answer is used while it is new."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from fake_api_server import until
from rltraining_api.contract import LearnerReport
from rltraining_operator.cluster import Key
from rltraining_operator.kube import reports as reports_module
from rltraining_operator.kube.reports import OLD_SECONDS, Reports
from rltraining_operator.observed import Pod

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


def test_the_pass_that_an_answer_brings_about_uses_it_however_late_it_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Were the learner asked again then, that answer would wait for the next time, and be old: each time anew."""
    now, asked = [0.0], 0

    async def answer(pod: Pod, token: str) -> LearnerReport:
        nonlocal asked
        asked += 1
        return LearnerReport.model_validate({"progress": {"environmentSteps": asked}})

    monkeypatch.setattr(reports_module, "_ask", answer)
    monkeypatch.setattr(reports_module, "time", SimpleNamespace(monotonic=lambda: now[0]))

    async def scenario() -> None:
        reports, marked = Reports(), list[Key]()
        reports.mark = marked.append

        def steps() -> int | str | None:
            report = reports.newest(POD, "token")
            return report.progress.environment_steps if isinstance(report, LearnerReport) else report

        for due in range(1, 4):
            assert steps() == (due - 1 or "awaited"), "an answer that no pass has seen has grown old"
            await until(lambda due=due: len(marked) == due)
            now[0] += 2.0  # other jobs have gone before
            assert steps() == due, "the newest answer"
            await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})
            now[0] += 8.0
        assert marked == [Key("default", "demo")] * 3

    asyncio.run(scenario())


def test_what_a_learner_said_long_ago_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator that leads again, or that stood still, would write it over what another has written since."""
    now, steps = [0.0], [1000]

    async def answer(pod: Pod, token: str) -> LearnerReport:
        return LearnerReport.model_validate({"progress": {"environmentSteps": steps[0]}})

    monkeypatch.setattr(reports_module, "_ask", answer)
    monkeypatch.setattr(reports_module, "time", SimpleNamespace(monotonic=lambda: now[0]))

    async def scenario() -> None:
        reports, marked = Reports(), list[Key]()
        reports.mark = marked.append
        for turn in range(1, 4):
            assert reports.newest(POD, "token") == "awaited"
            await until(lambda turn=turn: len(marked) == turn)
            report = reports.newest(POD, "token")
            assert isinstance(report, LearnerReport)
            assert report.progress.environment_steps == steps[0]
            now[0] += OLD_SECONDS + 1
            steps[0] += 500 * (turn - 1)  # the second time it says the same: that is to be known, too

    asyncio.run(scenario())


def test_a_learner_is_awaited_until_it_has_failed_to_answer_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    async def silence(pod: Pod, token: str) -> None:
        now[0] += 2.0

    monkeypatch.setattr(reports_module, "_ask", silence)
    monkeypatch.setattr(reports_module, "time", SimpleNamespace(monotonic=lambda: now[0]))

    async def scenario() -> None:
        reports, marked = Reports(), list[Key]()
        reports.mark = marked.append
        assert reports.newest(POD, "token") == "awaited"
        assert reports.newest(POD, "token") == "awaited", "still being asked"
        await until(lambda: now[0] > 0)
        assert reports.newest(POD, "token") is None
        now[0] += 10.0
        assert reports.newest(POD, "token") is None, "asked again: known to be silent"
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})
        assert marked == [Key("default", "demo")], "once: a pass that can say so is to come"

    asyncio.run(scenario())
