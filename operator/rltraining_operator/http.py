"""Sends one HTTP GET without a dependency, for probes and the learner's report."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import NamedTuple

from rltraining_api.contract import TLS_PORT, port_prefix

RESPONSE_BYTES_MAX = 64 << 10
"""Bytes of a response's body that are read."""
_HEAD_BYTES_MAX = 8 << 10


class Response(NamedTuple):
    """An answer. `complete`: `body` is the whole body."""

    status: int
    body: bytes
    complete: bool = True


async def get(
    host: str,
    port: int,
    path: str,
    *,
    headers: Mapping[str, str] | None = None,
    timeout_seconds: float = 1.0,
    tls: ssl.SSLContext | None = None,
) -> Response | None:
    """Sends GET http://host:port/path, with ``tls`` through the tunnel of an encrypted job's pod. Returns None if
    there is no answer in time. Reads at most RESPONSE_BYTES_MAX bytes of the body.

    Raises ssl.SSLCertVerificationError if the pod has another token."""
    try:
        async with asyncio.timeout(timeout_seconds):
            return await _get(host, port, path, headers or {}, tls)
    except ssl.SSLCertVerificationError:
        raise
    except (OSError, ValueError, IndexError):
        return None


async def _get(
    host: str, port: int, path: str, headers: Mapping[str, str], tls: ssl.SSLContext | None
) -> Response:
    reader, writer = await asyncio.open_connection(host, TLS_PORT if tls else port, ssl=tls)
    try:
        if tls:
            writer.write(port_prefix(port))
        lines = [f"GET {path} HTTP/1.0", f"Host: {host}:{port}", *(f"{k}: {v}" for k, v in headers.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        await writer.drain()
        raw, most = bytearray(), _HEAD_BYTES_MAX + RESPONSE_BYTES_MAX
        while len(raw) <= most and (chunk := await reader.read(most + 1 - len(raw))):
            raw += chunk
    finally:
        writer.transport.abort()  # discard the rest of the answer
    head, separator, body = bytes(raw).partition(b"\r\n\r\n")
    if not separator:
        raise ValueError("the response ended before the end of its headers")
    return Response(int(head.split(None, 2)[1]), body[:RESPONSE_BYTES_MAX], len(body) <= RESPONSE_BYTES_MAX)
