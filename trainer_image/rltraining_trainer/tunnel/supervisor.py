"""Keeps the tunnel's process running."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

MODULE = "rltraining_trainer.tunnel.process"
PATH, PORT = "RLTRAINING_TUNNEL", "RLTRAINING_TUNNEL_PORT"
"""Environment variables by which preload.c finds the process."""
CLOSE_SECONDS, PAUSE_SECONDS = 3.0, 0.3
"""How long the end waits for the process, and the pause between a failed start and the next one."""

_LOG = logging.getLogger(__name__)


class TunnelFailed(Exception):
    """The process could not be started."""


class TunnelProcess:
    """The tunnel of this pod, until the pod ends."""

    def __init__(self, port: int, token: str) -> None:
        """Starts the process, which listens on ``port``. Raises TunnelFailed."""
        self._port, self._token = port, token
        self._closing = False
        self._folder = tempfile.TemporaryDirectory(prefix="tunnel-")
        self._path, self._own_port = Path(self._folder.name, "control"), 0
        self._process = self._start()
        # These variables do not change when the process is replaced, since torch reads them in other threads.
        os.environ |= {PATH: str(self._path), PORT: str(self._own_port)}
        threading.Thread(target=self._watch, name="tunnel", daemon=True).start()

    def close(self) -> None:
        """Ends the process after it has forwarded the received bytes. Close torch's connections first."""
        self._closing = True
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSE_SECONDS)

    def _start(self) -> subprocess.Popen[str]:
        """Starts the process, which listens on the port of the previous process."""
        self._path.unlink(missing_ok=True)
        numbers = (self._port, self._own_port, os.getpid())
        process = subprocess.Popen(  # noqa: S603 - a module of this package
            [sys.executable, "-P", "-m", MODULE, *map(str, numbers), str(self._path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        # Send the token, and wait until the process listens.
        with process.stdin as pipe, process.stdout as answer:
            pipe.write(self._token + "\n")
            pipe.flush()
            port = answer.readline().strip()
        if not port:
            raise TunnelFailed(
                f"the tunnel on port {self._port} could not be started, exit code {process.wait()}; see the log"
            )
        self._own_port = int(port)
        return process

    def _watch(self) -> None:
        """Replaces the process when it ends. Its connections are then lost, as if their peers had died."""
        while True:
            code = self._process.wait()
            if self._closing:
                return
            _LOG.warning("the tunnel ended with exit code %d; starting it again", code)
            while not self._closing:
                try:
                    self._process = self._start()
                    break
                except (OSError, TunnelFailed) as error:
                    _LOG.warning("%s", error)
                    time.sleep(PAUSE_SECONDS)
