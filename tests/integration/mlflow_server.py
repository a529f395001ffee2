"""Runs MLflow's tracking server, at the version of the client, in a separate environment, and reads its REST API."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import psutil

from tests.free_port import free_port

PACKAGE = f"mlflow=={version('mlflow-skinny')}"
"""The complete package, at the version of the client, which constraints.txt pins."""
SECONDS = 240.0
"""Time to install and start the server. The first time uv downloads 680 MB into its cache."""
ANSWER_SECONDS, END_SECONDS = 60.0, 10.0

Value = tuple[int, int, float]
"""Time in ms, step and value of a metric."""


class MlflowServer:
    """A server that can be killed and started again, with its data in a folder."""

    def __init__(self, folder: Path) -> None:
        self.uri = f"http://127.0.0.1:{free_port()}"
        self._folder, self._log = folder, folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the server. Raises AssertionError if it cannot be installed or started."""
        uv = str(Path(sys.executable).with_name("uv"))
        host, port = self.uri.removeprefix("http://").split(":")
        command = [uv, "run", "--quiet", "--no-project", "--isolated", "--python", sys.executable]
        command += ["--with", PACKAGE, "mlflow", "server", "--host", host, "--port", port, "--workers", "1"]
        command += ["--backend-store-uri", f"sqlite:///{self._folder}/mlflow.db"]
        command += ["--default-artifact-root", str(self._folder / "artifacts")]
        # Leave out the user's settings, and what this test process needs.
        left_out = ("MLFLOW_", "PYTHON")
        env = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
        env |= {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        with self._log.open("w") as log:
            self._process = subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=log, env=env)
        deadline = time.monotonic() + SECONDS
        while not self._healthy():
            ended = self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                self.kill()
                why = "ended before it was ready" if ended else f"is not ready after {SECONDS:g} s"
                raise AssertionError(
                    f"MLflow's server, the package {PACKAGE}, {why}. The first start needs a package registry, "
                    f"from which uv installs it. Its output:\n{self._log.read_text()[-2000:]}"
                )
            time.sleep(0.1)

    def kill(self) -> None:
        """Kills the server's processes. uv, their parent, then removes its temporary environment."""
        if (process := self._process) is None:
            return
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    child.kill()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:  # uv was still installing
            process.kill()
            process.wait()
        self._process = None

    def runs(self, experiment: str) -> list[dict[str, Any]]:
        """Returns the runs of an experiment. Empty if it does not exist."""
        found = self._get("experiments/search", filter=f"name = '{experiment}'", max_results=10)
        ids = [found["experiment_id"] for found in found.get("experiments", [])]
        if not ids:
            return []
        return list(self._post("runs/search", {"experiment_ids": ids}).get("runs", []))

    def history(self, run: dict[str, Any], metric: str) -> list[Value]:
        """Returns the values of a metric in the order of their times."""
        answer = self._get("metrics/get-history", run_id=run["info"]["run_id"], metric_key=metric)
        values = [
            (int(point["timestamp"]), int(point["step"]), float(point["value"]))
            for point in answer.get("metrics", [])
        ]
        return sorted(values)

    def _get(self, path: str, **arguments: Any) -> dict[str, Any]:
        return self._answer(Request(f"{self.uri}/api/2.0/mlflow/{path}?{urlencode(arguments)}"))

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        url, data = f"{self.uri}/api/2.0/mlflow/{path}", json.dumps(body).encode()
        return self._answer(Request(url, data=data, headers=headers))

    def _answer(self, request: Request) -> dict[str, Any]:
        with urlopen(request, timeout=ANSWER_SECONDS) as answer:
            body: dict[str, Any] = json.load(answer)
            return body

    def _healthy(self) -> bool:
        try:
            with urlopen(f"{self.uri}/health", timeout=ANSWER_SECONDS):
                return True
        except (URLError, ConnectionError):
            return False


@contextmanager
def mlflow_server(folder: Path) -> Iterator[MlflowServer]:
    """Runs a server in a folder. Nothing of it is left running after the block."""
    server = MlflowServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()
