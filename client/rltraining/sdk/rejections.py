"""Extracts the messages for users from the API server's rejections."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

NOT_CHECKED = "some validation rules were not checked"
PREFIXES = (
    "Invalid value",
    "Required value",
    "Unsupported value",
    "Too long",
    "Too many",
    "Duplicate value",
    "Forbidden",
)


UNKNOWN = re.compile(r'unknown field "([^"]+)"')
WRONG_TYPE = re.compile(r'must be of type (\w+): "(\w+)"')


def sentences(status: Mapping[str, Any]) -> list[str]:
    """Returns a sentence per problem of a `Status`, such as `spec.sampler.replicas: should be
    greater than or equal to 1, got 0`."""
    if unknown := UNKNOWN.findall(str(status.get("message") or "")):
        return [f"{field}: is not a known field" for field in unknown]
    causes = (status.get("details") or {}).get("causes") or ()
    found = list(dict.fromkeys(_sentence(cause) for cause in causes))
    checked = [sentence for sentence in found if NOT_CHECKED not in sentence] or found
    return checked or [_plain(str(status.get("message") or "no reason was given"))]


def _sentence(cause: Mapping[str, Any]) -> str:
    field, message = str(cause.get("field") or ""), str(cause.get("message") or "")
    said = clean(message, field)
    return f"{field}: {said}" if field and field != "<nil>" else said


def clean(message: str, field: str = "") -> str:
    """Returns a message without its kind of error: `Invalid value: "object": exactly one algorithm
    is needed` becomes `exactly one algorithm is needed`.

    A scalar value is kept at the end: `should be greater than or equal to 1, got 0`.
    """
    kind, colon, rest = message.partition(": ")
    if kind == "Required value":
        return "is required" + (f": {_plain(rest)}" if rest.strip() else "")
    if not colon or kind not in PREFIXES:
        return _plain(message)
    value, said = _split_value(rest)
    if said is None:
        return _plain(message)
    said = _plain(re.sub(rf"^{re.escape(field)} in body ", "", said))
    said = WRONG_TYPE.sub(r"must be of type \1, got \2", said)
    got = "" if value is None else f", got {value}"
    if kind in ("Invalid value", "Forbidden"):
        return said + got
    return f"{kind[0].lower()}{kind[1:]}{got and ' ' + str(value)}: {said}"


def _split_value(text: str) -> tuple[str | None, str | None]:
    """Splits a message into the value at its start, or None if the value is not helpful, and the
    rest."""
    try:
        value, end = json.JSONDecoder().raw_decode(text)
    except ValueError:
        head, colon, rest = text.rpartition("}: ") if text.startswith(("{", "map[")) else ("", "", "")
        return (None, rest) if colon and head else (None, text)
    if not text[end:].startswith(": "):
        return None, text
    shown = None if isinstance(value, dict | list) or value in (None, "object", "array") else text[:end]
    if isinstance(value, str) and value in ("string", "integer", "number", "boolean"):
        shown = None  # CEL names the type
    return shown, text[end + 2 :]


def _plain(text: str) -> str:
    return " ".join(text.split()).rstrip(".")


RBAC = re.compile(r'User "(?P<user>[^"]*)" cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)"')


def denied(message: str) -> str | None:
    """Describes a rejection by RBAC. Returns None for other causes (quota, admission)."""
    found = RBAC.search(message)
    if found is None:
        return None
    where = re.search(r'in the namespace "([^"]+)"', message)
    scope = f"in namespace {where[1]}" if where else "in the whole cluster"
    return (
        f"{found['user'] or 'this user'} may not {found['verb']} {found['resource']} {scope}: "
        "ask for a Role that allows it"
    )
