"""When learners are asked, and that what they answer is used while it is new."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from fake_api_server import until
from rltraining_api.contract import LearnerReport
from rltraining_operator.cluster import Key
from rltraining_operator.kube import reports as reports_module
from rltraining_operator.kube.reports import Reports
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

        def steps() -> int | None:
            report = reports.newest(POD, "token")
            return report.progress.environment_steps if report else None

        for due in range(1, 4):
            assert steps() == (due - 1 or None), "an answer that no pass has seen has grown old"
            await until(lambda due=due: len(marked) == due)
            now[0] += 2.0  # other jobs have gone before
            assert steps() == due, "the newest answer"
            await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})
            now[0] += 8.0
        assert marked == [Key("default", "demo")] * 3

    asyncio.run(scenario())
