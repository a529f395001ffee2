"""Provides addresses without DNS: every pod gets an HTTP port of this host, and environment values
are rewritten."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Mapping

from rltraining_api.contract import ENV_HTTP_HOST, ENV_HTTP_PORT, ENV_TLS_PORT, HTTP_PORT

HOST = "127.0.0.1"
POD_URL = re.compile(rf"http://([a-z0-9-]+)\.[a-z0-9-]+:{HTTP_PORT}\b")
"""`http://<pod>.<service>:8080`"""
LOOPBACK_INTERFACE = {"linux": "lo", "darwin": "lo0"}


class Ports:
    """One port per pod name, the same for every incarnation, so that the addresses of peers remain
    valid.

    A port is reserved by a socket that is bound but does not listen. No other program can get the
    port, while a server that sets SO_REUSEADDR, as HTTP servers do, can listen on it.
    """

    def __init__(self) -> None:
        self._holders: dict[str, socket.socket] = {}

    def of(self, pod: str) -> int:
        """Returns the port of a pod."""
        if pod not in self._holders:
            holder = socket.socket()
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind((HOST, 0))
            self._holders[pod] = holder
        return int(self._holders[pod].getsockname()[1])

    def close(self) -> None:
        """Releases all ports."""
        for holder in self._holders.values():
            holder.close()
        self._holders.clear()


def localize(env: Mapping[str, str], pod: str, ports: Ports) -> dict[str, str]:
    """Returns the environment of a pod with addresses of this host. HTTP, RPC and the collectives
    of learners use the loopback interface, without encryption."""
    local = {
        name: POD_URL.sub(lambda url: f"http://{HOST}:{ports.of(url[1])}", value)
        for name, value in env.items()
        if name != ENV_TLS_PORT
    }
    if ENV_HTTP_PORT in local:
        local |= {ENV_HTTP_PORT: str(ports.of(pod)), ENV_HTTP_HOST: HOST}
    if interface := LOOPBACK_INTERFACE.get(sys.platform):
        for variable in ("TP_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
            local.setdefault(variable, interface)
    return local
