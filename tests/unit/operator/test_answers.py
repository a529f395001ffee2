"""For any answer of a learner, the operator reads little, uses little CPU time, and logs little."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from rltraining_api.contract import HTTP_PORT, PORT_BYTES, REPORT_BYTES_MAX, LearnerReport
from rltraining_api.tls import server_context
from rltraining_operator import http
from rltraining_operator.observe.answers import PROBLEM_MAX, TOKEN_REJECTED, BadReport, parse_report
from rltraining_operator.observe.ask import ask_learner

MEGABYTE = 1 << 20
BOMBS = {
    "numbers for warnings": b'{"warnings":[' + b",".join([b"0"] * 520_000) + b"]}",
    "empty conditions": b'{"conditions":[' + b",".join([b"{}"] * 340_000) + b"]}",
    "points that are none": b'{"curve":[' + b",".join([b"{}"] * 340_000) + b"]}",
    "one long warning": b'{"warnings":[{"reason":"A","message":"' + b"x" * MEGABYTE + b'"}]}',
    "valid warnings": json.dumps({"warnings": [{"reason": "R", "message": "m" * 200}] * 4000}).encode(),
    "nesting": b"[" * MEGABYTE,
    "a number": b'{"progress":{"environmentSteps":' + b"9" * MEGABYTE + b"}}",
}


def as_large_as_is_read(bomb: bytes) -> bytes:
    """Returns the bomb shortened to the length that is read, as a list or text that is still valid."""
    middle = bomb[64 : REPORT_BYTES_MAX - 64]
    for end in (bomb[-20:], b"]}", b'"}]}'):
        for cut in range(8):
            try:
                json.loads(whole := bomb[:64] + middle[: len(middle) - cut] + end)
            except (ValueError, RecursionError):
                continue
            return whole
    return bomb[:REPORT_BYTES_MAX]


@asynccontextmanager
async def answering(
    body: bytes, *, status: str = "200 OK", endless: bool = False, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Starts a learner that answers this. Returns its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if tls is not None:
            assert await reader.readexactly(PORT_BYTES) == HTTP_PORT.to_bytes(PORT_BYTES, "big")
        await reader.readuntil(b"\r\n\r\n")
        try:
            writer.write(f"HTTP/1.0 {status}\r\n\r\n".encode() + body)
            await writer.drain()
            while endless:
                writer.write(b"x" * 65_536)
                await writer.drain()
        except ConnectionError:  # the operator has read enough
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize("kind", BOMBS)
async def test_a_megabyte_is_refused_before_it_is_read(kind: str) -> None:
    async with answering(BOMBS[kind]) as port:
        answer = await ask_learner("127.0.0.1", port, "token", 2.0)
    assert answer == BadReport("it is longer than 64 KiB")


@pytest.mark.parametrize(
    ("more", "answer"),
    [(-1, LearnerReport()), (0, LearnerReport()), (1, BadReport("it is longer than 64 KiB"))],
)
async def test_an_answer_of_64_kib_is_read_and_a_longer_one_is_not(
    more: int, answer: LearnerReport | BadReport
) -> None:
    async with answering(b"{" + b" " * (REPORT_BYTES_MAX - 2 + more) + b"}") as port:
        assert await ask_learner("127.0.0.1", port, "token", 2.0) == answer


async def test_a_learner_with_the_token_of_another_key_is_said_to_refuse_ours() -> None:
    async with answering(b"", status="401 Unauthorized") as port:
        assert await ask_learner("127.0.0.1", port, "token", 2.0) == TOKEN_REJECTED


async def test_an_answer_without_end_is_not_read_to_its_end() -> None:
    async with answering(b"{", endless=True) as port:
        assert await ask_learner("127.0.0.1", port, "token", 2.0) == BadReport("it is longer than 64 KiB")


@pytest.mark.parametrize("kind", BOMBS)
def test_what_is_read_of_a_bomb_neither_blocks_the_event_loop_nor_fills_log_and_memory(kind: str) -> None:
    """Measured: at most milliseconds and 3 MB. Before, a megabyte took seconds and gigabytes."""
    body = as_large_as_is_read(BOMBS[kind])
    assert len(body) > 50_000
    tracemalloc.start()
    began = time.process_time()
    answer = parse_report(body)
    seconds, (_, peak) = time.process_time() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seconds < 0.25, "this delays the passes of other jobs"
    assert peak < 16 * MEGABYTE
    if isinstance(answer, BadReport):
        assert len(answer.problem) <= PROBLEM_MAX
        assert answer.problem.isprintable()
    else:
        assert len(answer.model_dump_json()) < 16_384, "the warnings that are kept are cut"


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"[]", "1 error, the first: the report: Input should be an object"),
        (
            b'{"progress":{"environmentSteps":-1,"episodes":"x"}}',
            "2 errors, the first: progress.environmentSteps: Input should be greater than or equal to 0",
        ),
        (b'{"conditions":[{}]}', "4 errors, the first: conditions.0.type: Field required"),
        (
            # The API server would otherwise reject the complete status, including the job's end.
            b'{"checkpoint":{"uri":"s3://a/b","step":1,"time":"2020-01-01T00:00:00"}}',
            "1 error, the first: checkpoint.time: Input should have timezone info",
        ),
    ],
)
def test_of_what_is_wrong_the_number_and_the_first_are_said(body: bytes, problem: str) -> None:
    assert parse_report(body) == BadReport(problem)


def test_fields_of_a_newer_learner_are_left_out() -> None:
    assert parse_report(b'{"state":"Training","new":{"x":1}}') == LearnerReport(state="Training")


@pytest.mark.parametrize(("token", "answer"), [("token", LearnerReport()), ("another", TOKEN_REJECTED)])
async def test_the_report_of_an_encrypted_job_is_read_over_tls_from_a_holder_of_the_token(
    token: str, answer: LearnerReport | BadReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with answering(b"{}", tls=server_context("token")) as port:
        monkeypatch.setattr(http, "TLS_PORT", port)
        assert await ask_learner("127.0.0.1", HTTP_PORT, token, 10.0, encrypted=True) == answer
