"""Derives the tokens of jobs from the operator's key, so that it needs no right to read Secrets in
their namespaces."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Any

from rltraining_operator.errors import ConflictError, NotFoundError, RejectedError
from rltraining_operator.kube.api import Api
from rltraining_operator.kube.paths import collection, item

KEY_BYTES = 32
KEY = "key"
"""Key of the Secret's data."""
PURPOSE = b"rltraining.dev/job-token:"
"""Prefix of the uid, so that no other value derived from the key can be a token."""
ATTEMPTS = 5
"""Attempts to write the Secret if others write it at the same time."""


class Tokens:
    """Derives tokens. `key`: at least 32 bytes."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def of(self, uid: str) -> str:
        """Returns the token of the job with this uid: HMAC-SHA256 in hexadecimal, 64 characters."""
        return hmac.new(self._key, PURPOSE + uid.encode(), hashlib.sha256).hexdigest()


async def load_key(api: Api, namespace: str, name: str) -> bytes:
    """Reads the operator's key. Creates one if the Secret is empty, as created by the chart, or
    does not exist.

    Raises `RejectedError` if the key is too short or not base64, and `ClusterError`.
    """
    path = item("Secret", namespace, name)
    for _ in range(ATTEMPTS):
        try:
            found = await _read_or_create(api, path, namespace, name)
            if not found.get("data"):
                # The request contains the resourceVersion, so that one of two replicas that start
                # together wins.
                found = await api.put(path, found | {"data": _new_data()})
        except ConflictError:
            continue
        return _decode(found, f"{namespace}/{name}")
    raise ConflictError(f"Secret {namespace}/{name} is repeatedly overwritten by another client")


async def _read_or_create(api: Api, path: str, namespace: str, name: str) -> dict[str, Any]:
    try:
        return await api.get(path)
    except NotFoundError:
        metadata = {"name": name, "namespace": namespace}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": _new_data()}
        return await api.post(collection("Secret", namespace), body)


def _new_data() -> dict[str, str]:
    return {KEY: base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()}


def _decode(found: Mapping[str, Any], name: str) -> bytes:
    try:
        key = base64.b64decode(found["data"].get(KEY, ""), validate=True)
    except binascii.Error:
        key = b""
    if len(key) < KEY_BYTES:
        raise RejectedError(f"Secret {name}: {KEY} must be at least {KEY_BYTES} bytes, found {len(key)}")
    return key
