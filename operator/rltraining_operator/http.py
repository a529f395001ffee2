"""One HTTP GET without a dependency: probes and the learner's report need no more."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

RESPONSE_MAX = 1 << 20
"""Bytes of a response that are read; more than any report has."""


class Response(NamedTuple):
    status: int
    body: bytes


async def get(
    host: str, port: int, path: str, *, headers: Mapping[str, str] | None = None, timeout_seconds: float = 1.0
) -> Response | None:
    """GET http://host:port/path; None when no complete answer came in time."""
    try:
        async with asyncio.timeout(timeout_seconds):
            return await _get(host, port, path, headers or {})
    except (OSError, ValueError, IndexError):
        return None


async def _get(host: str, port: int, path: str, headers: Mapping[str, str]) -> Response:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        lines = [f"GET {path} HTTP/1.0", f"Host: {host}:{port}", *(f"{k}: {v}" for k, v in headers.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        await writer.drain()
        raw = bytearray()
        while len(raw) < RESPONSE_MAX and (chunk := await reader.read(1 << 16)):
            raw += chunk
    finally:
        writer.close()
    head, separator, body = bytes(raw).partition(b"\r\n\r\n")
    if not separator:
        raise ValueError("the answer ended within its head")
    return Response(int(head.split(None, 2)[1]), body)
