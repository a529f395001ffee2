"""Bounds the parts of a job's object, in bytes of JSON as the API server stores them.

Much of a status is text that pods choose: reports, termination messages, names of files in
tracebacks. The operator rewrites the status every few seconds, and etcd stores it for all jobs.
With every part at its bound these parts take about 49 KiB: conditions 18, the curve 11, URIs 8,
warnings 5, evaluations 1. Only the operator's own counters grow further: about 100 bytes in the
ledger for each restarted pod, and the ranges of the members' indices.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

OBJECT_BYTES_MAX = 64 << 10
"""Bound of a job's object, whatever its pods report, with a spec of a few kilobytes and 250
restarted pods."""
MESSAGE_BYTES_MAX = 1024
"""Size of `status.message`, and of a condition's message unless CONDITION_BYTES_MAX sets
another."""
CONDITION_BYTES_MAX = {
    "FailureTarget": 4096,  # the end of the job with the traceback of user code: all that Kubernetes keeps of it
    "Failed": 4096,
    "ReplicaFailure": 2048,  # admission webhooks are wordy
}
REPORTED_BYTES_MAX = 640
"""Size of a warning, and of the message of a condition that a learner reports."""
URI_BYTES_MAX = 2560
"""Size of a URI that a learner reports: a `checkpoint.uri` and a path below it. A longer URI is
dropped."""

_GAP = " ... "
_ESCAPED = re.compile(r'[\x00-\x1f"\\<>&\u2028\u2029]')


def json_bytes(text: str) -> int:
    """Returns the bytes of `text` in JSON as Go writes it, without quotes: `<`, `>` and `&` take
    six."""
    return len(text.encode(errors="replace")) + sum(map(_extra, _ESCAPED.findall(text)))


def clip(text: str, most: int) -> str:
    """Returns `text`, or as much of its beginning (a third) and its end as fits into `most` bytes
    of JSON. An error begins with what failed, and a traceback ends with the cause."""
    if len(text) > 2 * most:
        text = text[:most] + text[-most:]
    if json_bytes(text) <= most:
        return text
    room = most - len(_GAP)
    head = _fitting(text, room // 3)
    tail = _fitting(reversed(text), room - json_bytes(text[:head]))
    return text[:head] + _GAP + text[len(text) - tail :]


def _fitting(characters: Iterable[str], room: int) -> int:
    """Returns how many of the first characters fit into `room` bytes."""
    count = 0
    for character in characters:
        room -= json_bytes(character)
        if room < 0:
            break
        count += 1
    return count


def _extra(character: str) -> int:
    """Returns the number of bytes that escaping adds."""
    if character in '"\\\n\r\t':
        return 1
    return 3 if character in "\u2028\u2029" else 5
