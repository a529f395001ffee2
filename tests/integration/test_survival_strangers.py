"""Strangers connect to a running learner, and leave or send requests, pickles and random bytes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
from pathlib import Path

import pytest
import raw_call
from rltraining_api.contract import RENDEZVOUS_PATH, STATUS_PATH
from rltraining_operator.local import backoff
from rltraining_operator.local.network import HOST
from rltraining_operator.local.runtime import Command
from small_jobs import small_job
from training import LEARNER, SECONDS, Run, Train, eventually


async def connect(run: Run) -> tuple[str, asyncio.StreamReader, asyncio.StreamWriter]:
    """Connects to the learner's current RPC port. Returns its URL too."""
    document = await run.rendezvous()
    assert document is not None
    port = int(document["url"].rpartition(":")[2])
    return document["url"], *await asyncio.open_connection(HOST, port)


async def recovered(run: Run, url: str) -> None:
    """Waits until the learner has another URL and training continues."""
    async with asyncio.timeout(SECONDS):
        while (document := await run.rendezvous()) is None or document["url"] in ("", url):
            await asyncio.sleep(0.02)
    await run.until_ready()
    await run.until_steps()


def test_strangers_are_refused_and_what_they_break_recovers(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "MAX_SECONDS", 0.5)  # otherwise there would be a minute of pauses
    trace = tmp_path / "executed"

    async def scenario(run: Run) -> None:
        await run.until_learning()
        for path in (RENDEZVOUS_PATH, STATUS_PATH):
            for token in ("", "another token", run.token[:-1]):
                answer = await run.get(path, token)
                assert answer is not None
                assert answer.status == 401
                assert run.token.encode() not in answer.body

        # Without the token nothing is answered, and no pickle is executed.
        document = await run.rendezvous()
        assert document is not None
        for port in (run.port(LEARNER), int(document["url"].rpartition(":")[2])):
            with pytest.raises(ConnectionRefusedError):  # would reach a server on all interfaces
                await asyncio.open_connection("127.0.0.2", port)
        before = peak_megabytes(run)
        caller, refused, outcomes = await act(run, document["url"], trace)
        assert caller == "calling"
        assert refused.startswith("Refused: ")
        assert len(json.loads(outcomes)) == 13
        for outcome in json.loads(outcomes):
            assert outcome.startswith("raised"), outcome
            assert "refused: the token is wrong" in outcome
        assert not trace.exists()
        assert peak_megabytes(run) < before + 256, "a bomb was unpickled"
        await eventually(lambda: "refused calls without the job's token" in run.log(LEARNER))

        # A connection that closes immediately breaks the RPC endpoint, which then opens another port.
        for _ in range(2):
            url, _, writer = await connect(run)
            writer.close()
            await recovered(run, url)
        status = run.job.status
        assert (status.restarts, status.failures, status.disruptions) == (0, 0, 0)

        # Other bytes end the learner, which then continues from its checkpoint. That is no failure of the job.
        checkpoint = await run.until_checkpoint()
        length = (1 << 30).to_bytes(8, "little")  # of a frame that never follows
        contents = [*[b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"] * 7, length, random.Random(3).randbytes(4096)]
        for content in contents:
            url, reader, writer = await connect(run)
            writer.write(content)
            with contextlib.suppress(OSError):
                await reader.read(1)  # until it hangs up, dead or alive
            writer.close()
            await recovered(run, url)
        assert run.steps >= checkpoint
        status = (await run.finish()).status
        assert status.sampler.restarts == 0
        assert 8 <= status.learner.restarts == status.disruptions <= 9
        assert status.failures == 0

    train(small_job(), scenario)


def peak_megabytes(run: Run) -> int:
    """Returns the peak resident memory of the learner's process."""
    lines = Path(f"/proc/{run.process(LEARNER).pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) >> 10


async def act(run: Run, url: str, trace: Path) -> list[str]:
    """Runs a stranger in a separate process. Returns its output, line by line."""
    log = run.cluster.workdir / "logs" / "stranger.log"
    said = run.cluster.workdir / "said"
    secret = run.cluster.workdir / ".pods" / LEARNER / "token" / "token"
    argv = [
        "rltraining-trainer",
        "stranger",
        url,
        str(trace),
        str(secret),
        str(raw_call.compiled()),
        str(said),
    ]
    process = await run.runtime.start(Command(argv, {"TP_SOCKET_IFNAME": "lo"}, Path.cwd(), log, "stranger"))
    try:
        async with asyncio.timeout(SECONDS):
            await process.wait()
    finally:
        process.send_signal(signal.SIGKILL)
    return said.read_text().splitlines()
