"""The program of `helm test`, run against an HTTP server in place of the operator's Service."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from helm import APP_VERSION, CHART, Helm

SERVICE = "http://rltraining-operator:8080"


class Operator(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"rltraining_leader 1.0\n")

    def log_message(self, *_: object) -> None:
        """Writes nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Operator) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def program(helm: Helm, folder: Path, app_version: str) -> str:
    """Returns the program of the test pod of a chart with this appVersion."""
    copy = folder / "chart"
    shutil.copytree(CHART, copy)
    about = (copy / "Chart.yaml").read_text()
    (copy / "Chart.yaml").write_text(
        about.replace(f"appVersion: {APP_VERSION}", f"appVersion: {app_version}")
    )
    pod = helm.render(chart=copy).one("Pod", "rltraining-operator-test")
    return pod["spec"]["containers"][0]["command"][2]


@pytest.mark.parametrize("app_version", [APP_VERSION, "99.0.0"])
def test_the_operator_answers_and_has_the_version_of_the_chart(
    helm: Helm, tmp_path: Path, address: str, app_version: str
) -> None:
    text = program(helm, tmp_path, app_version)
    assert SERVICE in text
    command = [sys.executable, "-c", text.replace(SERVICE, address)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if app_version == APP_VERSION:
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines()[0] == f"version {APP_VERSION}"
    else:
        assert done.returncode == 1
        assert f"has version {APP_VERSION}, but the chart is for 99.0.0" in done.stderr
