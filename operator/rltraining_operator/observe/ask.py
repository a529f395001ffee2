"""Requests the report of a learner."""

from __future__ import annotations

import ssl

from rltraining_api.contract import STATUS_PATH, LearnerReport

from rltraining_operator import http
from rltraining_operator.observe.answers import TOKEN_REJECTED, TOO_LONG, BadReport, parse_report

UNAUTHORIZED = 401


async def ask_learner(
    host: str, port: int, token: str, timeout_seconds: float, *, encrypted: bool = False
) -> LearnerReport | BadReport | None:
    """Returns the report of the learner at this address, or None if it does not answer in time or
    has no report yet. With ``encrypted`` over TLS."""
    headers = {"Authorization": f"Bearer {token}"}
    tls = None
    if encrypted:
        from rltraining_api.tls import client_context

        tls = client_context(token)
    try:
        response = await http.get(
            host, port, STATUS_PATH, headers=headers, timeout_seconds=timeout_seconds, tls=tls
        )
    except ssl.SSLCertVerificationError:
        return TOKEN_REJECTED
    if response is not None and response.status == UNAUTHORIZED:
        return TOKEN_REJECTED
    if response is None or response.status != 200:
        return None
    if not response.complete:
        return TOO_LONG
    return parse_report(response.body)
