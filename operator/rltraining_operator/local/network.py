"""Addresses without DNS: every pod gets an HTTP port of this host, and environment values are rewritten to it."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Mapping

from rltraining_api.contract import ENV_HTTP_HOST, ENV_HTTP_PORT, HTTP_PORT

HOST = "127.0.0.1"
POD_URL = re.compile(rf"http://([a-z0-9-]+)\.[a-z0-9-]+:{HTTP_PORT}\b")
"""`http://<pod>.<service>:8080`"""
LOOPBACK_INTERFACE = {"linux": "lo", "darwin": "lo0"}


class Ports:
    """One port per pod name, the same for every incarnation, so that addresses given to peers stay right.

    A port is held by a socket that is bound but does not listen: nobody else is given it, while a server that sets
    SO_REUSEADDR, as HTTP servers do, can listen on it.
    """

    def __init__(self) -> None:
        self._holders: dict[str, socket.socket] = {}

    def of(self, pod: str) -> int:
        """The port of a pod."""
        if pod not in self._holders:
            holder = socket.socket()
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind((HOST, 0))
            self._holders[pod] = holder
        return int(self._holders[pod].getsockname()[1])

    def close(self) -> None:
        """Give all ports back."""
        for holder in self._holders.values():
            holder.close()
        self._holders.clear()


def localize(env: Mapping[str, str], pod: str, ports: Ports) -> dict[str, str]:
    """The environment of a pod with addresses of this host. HTTP, RPC and learners among themselves stay on the loopback
    interface."""
    local = {
        name: POD_URL.sub(lambda url: f"http://{HOST}:{ports.of(url[1])}", value)
        for name, value in env.items()
    }
    if ENV_HTTP_PORT in local:
        local |= {ENV_HTTP_PORT: str(ports.of(pod)), ENV_HTTP_HOST: HOST}
    if interface := LOOPBACK_INTERFACE.get(sys.platform):
        for variable in ("TP_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
            local.setdefault(variable, interface)
    return local
