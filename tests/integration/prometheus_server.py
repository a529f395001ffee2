"""Runs Debian's Prometheus, which scrapes the given targets and answers queries."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from tests.free_port import free_port
from tests.local_kubernetes.debian import unpack
from tests.local_kubernetes.errors import ClusterError
from tests.local_kubernetes.locks import alone
from tests.local_kubernetes.places import Places

SECONDS = 120.0
"""A wait that takes longer hangs, however busy the machine is."""
INTERVAL = "1s"
SETTLED_SECONDS = 2.0
"""Age at which samples are final. A scrape that times out is recorded at the time of its start, one interval later."""


class Programs(NamedTuple):
    prometheus: Path
    promtool: Path


def programs() -> Programs:
    """Returns the programs on PATH, or of Debian's package, which is unpacked once. Skips the test without any."""
    found = [shutil.which(name) for name in Programs._fields]
    if all(found):
        return Programs(*map(Path, filter(None, found)))
    places = Places()
    folder = places.cache / "prometheus"
    unpacked = Programs(*(folder / "usr" / "bin" / name for name in Programs._fields))
    with alone(places, "prometheus"):
        if not all(program.exists() for program in unpacked):
            try:
                unpack("prometheus", folder)
            except ClusterError as error:
                pytest.skip(f"no Prometheus: put `prometheus` and `promtool` on PATH; {error}")
    return unpacked


class Prometheus:
    """A running Prometheus. Tests add targets."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._folder = url, folder

    def scrape(self, job: str, ports: Mapping[str, int], namespace: str, **labels: str) -> None:
        """Adds these pods of this host as targets, with the metadata that Kubernetes' discovery has for such labels."""
        found = []
        for pod, port in ports.items():
            said = {
                "namespace": namespace,
                "pod_name": pod,
                "pod_phase": "Running",
                "pod_container_port_name": "http",
                **{f"pod_label_{label}": value for label, value in labels.items()},
            }
            meta = {f"__meta_kubernetes_{name}": value for name, value in said.items()}
            found.append({"targets": [f"127.0.0.1:{port}"], "labels": meta})
        new = self._folder / "new"
        new.write_text(json.dumps(found))
        new.rename(self._folder / f"{'-'.join((job, *labels.values()))}.json")

    def query(self, expression: str, at: float) -> list[dict[str, Any]]:
        """Returns the result of an instant query. Raises AssertionError if Prometheus refuses the query."""
        return list(self.get(f"query?{urlencode({'query': expression, 'time': at})}")["result"])

    def within(self, expression: str, start: float, end: float) -> set[float]:
        """Returns the times, in steps of a quarter of a second, at which a panel would draw a value of the query."""
        arguments = {"query": expression, "start": start, "end": end, "step": 0.25}
        result = self.get(f"query_range?{urlencode(arguments)}")["result"]
        return {moment for series in result for moment, _ in series["values"]}

    def get(self, path: str) -> Any:
        """`data` of the HTTP API's answer."""
        try:
            with urlopen(f"{self._url}/api/v1/{path}", timeout=SECONDS) as answer:
                return json.load(answer)["data"]
        except HTTPError as error:
            raise AssertionError(f"{path}: {error.read().decode()}") from error

    def until(self, expression: str) -> float:
        """Waits until a query has a result that does not change any more. Returns the time of that query."""
        deadline = time.monotonic() + SECONDS
        while True:
            moment = time.time() - SETTLED_SECONDS
            if self.query(expression, moment):
                return moment
            assert time.monotonic() < deadline, (
                f"nothing within {SECONDS} s: {expression}: {self.get('targets')}"
            )
            time.sleep(0.05)


@contextmanager
def prometheus(folder: Path, configuration: Mapping[str, Any], rules: Path) -> Iterator[Prometheus]:
    """Runs Prometheus with this configuration. `scrape` adds the pods, since Debian's build cannot discover them."""
    for job in configuration["scrape_configs"]:
        del job["kubernetes_sd_configs"]
        job["file_sd_configs"] = [{"files": [f"{folder}/{job['job_name']}*.json"]}]
    often = {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL, "evaluation_interval": INTERVAL}
    configuration = {**configuration, "global": often, "rule_files": [str(rules)]}
    (folder / "prometheus.yml").write_text(json.dumps(configuration))
    address = f"127.0.0.1:{free_port()}"
    command = [
        str(programs().prometheus),
        f"--config.file={folder}/prometheus.yml",
        f"--web.listen-address={address}",
        f"--storage.tsdb.path={folder}/data",
    ]
    log = folder / "prometheus.log"
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env={**os.environ, "GOMAXPROCS": "1"})
    try:
        server = Prometheus(f"http://{address}", folder)
        deadline = time.monotonic() + SECONDS
        while not _ready(address):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        yield server
    finally:
        process.kill()
        process.wait()


def _ready(address: str) -> bool:
    try:
        with urlopen(f"http://{address}/-/ready", timeout=SECONDS):
            return True
    except URLError:
        return False
