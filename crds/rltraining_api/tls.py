"""TLS with the certificate of a job, which authenticates its pods and the operator.

All of them derive one key pair, and one certificate that is signed with it, from the job's token. Both sides of a
connection accept this certificate alone, so a peer that proves the possession of its key has the token. The certificate
names no host and does not expire.

This module needs the package `cryptography`, which the operator and the trainer require.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import ssl
from datetime import UTC, datetime
from functools import lru_cache

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

_NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "rltraining")])
_VALIDITY = datetime(2000, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


@lru_cache(maxsize=16_384)  # 17 KiB and 1 ms each: the operator connects to the same learners many times
def client_context(token: str) -> ssl.SSLContext:
    """Returns the context of connections to members of the job with this token."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, token)


def server_context(token: str) -> ssl.SSLContext:
    """Returns the context of a server that admits the job's members and the operator."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, token)
    context.num_tickets = 0  # no connection is resumed
    return context


def _context(protocol: int, token: str) -> ssl.SSLContext:
    certificate, key = _key_pair(token)
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # all members have the same certificate
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=certificate.decode())
    # Python reads keys only from files. This file is in memory.
    file = os.memfd_create("certificate")
    try:
        os.write(file, key + certificate)
        context.load_cert_chain(f"/proc/self/fd/{file}")
    finally:
        os.close(file)
    return context


def _key_pair(token: str) -> tuple[bytes, bytes]:
    """Returns the certificate and its key as PEM, always the same ones for a token: a signature of Ed25519 has no
    random part."""
    key = Ed25519PrivateKey.from_private_bytes(hmac.digest(token.encode(), b"tls", hashlib.sha256))
    begin, end = _VALIDITY
    certificate = (
        x509.CertificateBuilder(_NAME, _NAME, key.public_key(), 1, begin, end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, None)
    )
    return (
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )
