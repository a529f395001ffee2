"""The entire operator as a process: it survives a misbehaving API server and ends on a signal."""

from __future__ import annotations

import asyncio
from pathlib import Path

from operator_process import operating
from rltraining_api.names import PLURAL

from tests.unit.operator.kube.fake_api_server import Fault


def test_what_ends_kopf_ends_neither_the_process_nor_its_lead_and_sigterm_gives_the_lease_back(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        # A longer lease than usual, since the operator of a busy machine may renew it late.
        lease = {"leaseSeconds": 150, "renewSeconds": 120}
        async with operating(tmp_path, leaderElection=lease) as operator:
            server = operator.server
            await operator.submit("before")
            server.faults += [Fault("WATCH", PLURAL, status=401), Fault("WATCH", PLURAL, error=500)]
            watches = server.asked("WATCH", PLURAL)
            server.hang_up(PLURAL)
            await operator.until(lambda: server.asked("WATCH", PLURAL) == watches + 3)
            await operator.submit("after")
            assert operator.lease()["leaseTransitions"] == 0
            assert await operator.end() == 0

    asyncio.run(scenario())


def test_sigterm_while_the_server_refuses_kopf_gives_the_lease_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with operating(tmp_path) as operator:
            operator.server.faults.append(Fault("WATCH", PLURAL, status=403, times=1000))
            watches = operator.server.asked("WATCH", PLURAL)
            operator.server.hang_up(PLURAL)
            await operator.until(lambda: operator.server.asked("WATCH", PLURAL) > watches)
            assert await operator.end() == 0

    asyncio.run(scenario())
