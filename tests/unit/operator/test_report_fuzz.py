"""Thousands of mutated reports (`make soak`: 100,000) are read or rejected quickly, in constant memory."""

from __future__ import annotations

import gc
import json
import random
import time

from operator_world import World, make_world
from resident_memory import resident
from rltraining_api.contract import REPORT_BYTES_MAX, LearnerReport
from rltraining_operator.observe.answers import PROBLEM_MAX, parse_report
from rltraining_operator.status.bounds import OBJECT_BYTES_MAX
from soak import SOAK
from test_object_size import hostile_report, size

REPORTS = 5_000 * SOAK if SOAK > 1 else 500
PASSES = 100 * SOAK if SOAK > 1 else 20
"""Reports that also go through reconcile passes."""
SECONDS_MAX = 0.5
"""CPU seconds for one report: most take microseconds."""
SEEDS = [
    json.dumps(hostile_report(unit, 0, state).to_dict(), ensure_ascii=ascii_only).encode()
    for unit in ("a", "<", '"', "語")
    for state in ("Starting", "Training")
    for ascii_only in (True, False)
]
WORDS = [
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b'"',
        b",",
        b":",
        b"\\",
        b"null",
        b"true",
        b"NaN",
        b"-Infinity",
        b"1e999",
        b"-0",
    ),
    *(b"9" * 400, b"0.1", b'"conditions"', b'"warnings"', b'"curve"', b'"progress"', b'"time"', b"[" * 300),
    *(
        b"\x00",
        b"\xff\xfe",
        b"\xed\xa0\x80",
        b'"\\ud800"',
        b'{"reason":"R","message":"' + b"<" * 5000 + b'"},',
    ),
]


def mutated(random_: random.Random) -> bytes:
    """Returns a report with some bytes replaced, removed, doubled, or moved."""
    body = bytearray(random_.choice(SEEDS))
    for _ in range(random_.choice([1, 1, 2, 5, 20])):
        at = random_.randrange(len(body) + 1)
        end = min(at + random_.choice([1, 2, 10, 100, 5000]), len(body))
        match random_.randrange(5):
            case 0:
                body[at:end] = random_.randbytes(end - at)
            case 1:
                del body[at:end]
            case 2:
                body[at:at] = body[at:end] * random_.choice([1, 3, 50])
            case 3:
                body[at:at] = random_.choice(WORDS)
            case 4:
                to = random_.randrange(len(body) + 1)
                body[to:to] = body[at:end]
    return bytes(body[:REPORT_BYTES_MAX])


def resident_megabytes() -> float:
    """Returns the process's resident memory."""
    gc.collect()
    return resident() / (1 << 20)


def test_mutated_reports_are_read_or_refused_and_memory_stays_flat() -> None:
    random_ = random.Random(23)
    world: World = make_world().up()
    read, slowest, every, first = 0, 0.0, REPORTS // PASSES, 0.0
    for number in range(REPORTS):
        body = mutated(random_)
        began = time.process_time()
        answer = parse_report(body)
        slowest = max(slowest, time.process_time() - began)
        if isinstance(answer, LearnerReport):
            read += 1
            world.say(answer)
        else:
            assert len(answer.problem) <= PROBLEM_MAX
        if number % every == 0:
            world.after(6).settle()
            world.events.clear()
            assert size(world) < OBJECT_BYTES_MAX
        if number == REPORTS // 4:  # caches are filled
            first = resident_megabytes()
    last = resident_megabytes()
    print(
        f"{REPORTS} mutated reports, {read} read: slowest {slowest * 1e3:.1f} ms, "
        f"memory {first:.0f} MB after a quarter, {last:.0f} MB at the end"
    )
    assert read > REPORTS // 20, "mutations must not all be refused at the first character"
    assert slowest < SECONDS_MAX
    assert last < first * 1.1
