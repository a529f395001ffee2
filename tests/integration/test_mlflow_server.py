"""Runs are tracked by a real server of MLflow, also across its outage, and train without it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from mlflow_server import MlflowServer, Value, mlflow_server
from rltraining_api.job import RLTrainingJob
from small_jobs import small_job
from training import LEARNER, Run, Train, eventually

from tests.free_port import free_port

FIELD = "spec.tracking.mlflow: "
CREDENTIALS = (
    "spec.tracking.mlflow: points cannot be sent: the server refuses the credentials (HTTP 401): set "
    "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN (in a cluster: in the Secret "
    "of spec.tracking.secretName); training continues, and sending is tried again every 30 s"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    with mlflow_server(tmp_path_factory.mktemp("mlflow")) as server:
        yield server


def tracked_job(uri: str, experiment: str = "demo") -> RLTrainingJob:
    tracking = {"mlflow": {"experiment": experiment, "trackingUri": uri}}
    return small_job(tracking=tracking, sampler={"replicas": 1})


def curve(run: Run, metric: str) -> list[Value]:
    """The values of a metric in progress.jsonl, as MLflow should have them."""
    return [
        (int(1000 * point["time"]), point["environmentSteps"], float(point[metric]))
        for point in run.points
        if point.get(metric) is not None
    ]


def check_tracked(server: MlflowServer, experiment: str, run: Run) -> dict[str, Any]:
    """Checks that the experiment has one run, with all points. Returns the run."""
    (tracked,) = server.runs(experiment)
    assert tracked["info"]["status"] == "FINISHED"
    for metric in ("updates", "loss/total"):
        assert server.history(tracked, metric) == curve(run, metric)
    return tracked


def tracking_lines(run: Run) -> list[str]:
    """What the learner logged about its tracker: failures, and the success after them."""
    return [line for line in run.log(LEARNER).splitlines() if FIELD in line]


def test_a_server_of_mlflow_has_the_parameters_the_curves_and_the_end_of_a_run(
    train: Train, server: MlflowServer
) -> None:
    async def scenario(run: Run) -> None:
        def tracked_points() -> bool:
            assert not (lines := tracking_lines(run)), lines  # a failure would be tried again after a while
            return any(server.history(tracked, "updates") for tracked in server.runs("whole"))

        await run.until_learning()
        await eventually(tracked_points)
        (tracked,) = server.runs("whole")
        assert tracked["info"]["status"] == "RUNNING"
        await run.finish()

        tracked = check_tracked(server, "whole", run)
        assert tracked["info"]["run_name"] == "demo"
        parameters = {item["key"]: item["value"] for item in tracked["data"]["params"]}
        assert parameters["algorithm.impala.unrollLength"] == "16"
        assert parameters["environment.id"] == "PacedCartPole-v1"
        latest = {item["key"]: item["value"] for item in tracked["data"]["metrics"]}
        assert latest["updates"] == run.point["updates"]
        assert tracking_lines(run) == []

    train(tracked_job(server.uri, "whole"), scenario)


def test_a_server_that_is_killed_and_started_again_has_the_points_of_its_outage(
    train: Train, server: MlflowServer
) -> None:
    async def scenario(run: Run) -> None:
        await run.until_learning()
        await eventually(lambda: server.runs("outage"))

        # Training continues without the server, with a warning.
        server.kill()
        await eventually(lambda: run.event("TrackingFailed"))
        await run.until_updates(2)
        assert (warning := run.event("TrackingFailed")) is not None
        assert warning.startswith(
            f"{FIELD}points cannot be sent: MlflowException: API request to {server.uri}"
        )
        assert "Connection refused" in warning

        # The end of the run sends the points that were queued meanwhile.
        await asyncio.to_thread(server.start)
        await run.finish()
        check_tracked(server, "outage", run)
        failed, sent = tracking_lines(run)
        assert warning in failed
        assert f"{FIELD}points are sent again" in sent

    train(tracked_job(server.uri, "outage"), scenario)


class Refusing(BaseHTTPRequestHandler):
    """Answers as MLflow's server with basic authentication does to a wrong password."""

    def do_GET(self) -> None:
        body = b"You are not authenticated. Please see the documentation on how to authenticate."
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="mlflow"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing."""


@contextmanager
def refusing_server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", free_port()), Refusing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def no_server() -> Iterator[str]:
    yield f"http://127.0.0.1:{free_port()}"


@pytest.mark.parametrize(
    ("begin", "expected"), [(refusing_server, CREDENTIALS), (no_server, "Connection refused")]
)
def test_a_run_succeeds_with_warnings_when_the_server_is_down_or_refuses_the_credentials(
    begin: Any, expected: str, train: Train
) -> None:
    async def scenario(run: Run) -> None:
        await run.until_learning()
        await eventually(lambda: run.event("TrackingFailed"))
        assert expected in (run.event("TrackingFailed") or "")
        await run.finish()

        # The first warning gives the reason, and the last one the number of points that were not sent.
        assert run.reasons().count("TrackingFailed") == 2
        (warning,) = run.job.status.warnings
        assert f"{FIELD}{len(run.points)} points were not sent" in warning
        why, number = tracking_lines(run)
        assert expected in why
        assert f"{FIELD}{len(run.points)} points were not sent; progress.jsonl has them" in number

    with begin() as uri:
        train(tracked_job(uri), scenario)
