"""What a local cluster makes of a learner that does not answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from rltraining_api.contract import LearnerReport
from rltraining_operator.cluster import Awaited
from rltraining_operator.local import cluster as local_cluster
from rltraining_operator.local.cluster import LocalCluster
from rltraining_operator.observe.answers import BadReport
from rltraining_operator.observe.pod_view import Pod
from rltraining_operator.settings import UNREACHABLE_SECONDS


async def test_a_learner_is_silent_only_when_it_has_not_answered_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, answer = LocalCluster(tmp_path, AsyncMock()), LearnerReport(state="Training")

    async def report(uid: str, answer: LearnerReport | None) -> LearnerReport | BadReport | Awaited | None:
        monkeypatch.setattr(local_cluster, "ask_learner", AsyncMock(return_value=answer))
        pod = Pod({"metadata": {"name": "demo-learner-0", "uid": uid}})
        return await cluster.learner_report(pod, "token")

    assert await report("a", None) is None, "it has never answered"
    assert await report("a", answer) is answer
    await asyncio.sleep(UNREACHABLE_SECONDS - 1.0)
    assert await report("a", None) == "awaited"
    assert await report("b", None) is None, "of another incarnation of the pod"
    await asyncio.sleep(1.0)
    assert await report("a", None) is None
    assert await report("a", answer) is answer
    await asyncio.sleep(0.5)
    assert await report("a", None) == "awaited"
    await cluster.aclose()
