"""A program that keeps the trainer's contract without learning: LocalCluster's tests run it in pods.

A learner counts steps in a file of the output directory, so that the count survives the learner,
and finishes at STEPS. A sampler ends when the learner does. Tests configure the program with
environment variables of the pod template.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from rltraining_api import contract
from rltraining_api.contract import LearnerReport, TerminationMessage
from rltraining_api.status import Progress

TICK_SECONDS = 0.02


def main(argv: list[str]) -> int:
    """Runs `learner` or `sampler`."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    print(f"{argv[0]} {os.environ[contract.ENV_POD_NAME]} starts", flush=True)
    if hog := int(os.environ.get("HOG_MIB", "0")):
        _memory.append(bytearray(os.urandom(1 << 20) * hog))
    return learn() if argv[0] == "learner" else sample()


_memory: list[bytearray] = []


def learn() -> int:
    """Counts to STEPS and reports the progress."""
    counter = Path(os.environ[contract.ENV_OUTPUT_DIR], "steps")
    steps = int(counter.read_text()) if counter.exists() else 0
    report = LearnerReport(state="Training", progress=Progress(environment_steps=steps))
    state = {"report": report}
    serve(state)
    goal = int(os.environ.get("STEPS", "1000000"))
    while steps < goal:
        time.sleep(TICK_SECONDS)
        steps += 1
        fresh = counter.with_suffix(".new")
        fresh.write_text(str(steps))
        fresh.replace(counter)  # it may be killed at any moment
        state["report"] = report.model_copy(update={"progress": Progress(environment_steps=steps)})
    last = state["report"].model_copy(update={"state": "Finished", "stop_reason": f"{steps} steps are done"})
    say("Completed", "done", last)
    _done().touch()
    return 0


def sample() -> int:
    """Runs until the learner has ended."""
    if message := os.environ.get("RAISE"):
        say("UserCodeError", message)
        return int(contract.ExitCode.USER_CODE)
    serve({})
    while not (_done().exists() and os.environ.get("END_WITH_LEARNER")):
        time.sleep(TICK_SECONDS)
    return 0


def _done() -> Path:
    """Returns a file that exists once the learner has finished, possibly before a sampler starts."""
    return Path(os.environ[contract.ENV_OUTPUT_DIR], "done")


def say(reason: str, message: str, report: LearnerReport | None = None) -> None:
    """Writes the termination message."""
    content = TerminationMessage(reason=reason, message=message, report=report)
    Path(os.environ[contract.ENV_TERMINATION_LOG]).write_text(json.dumps(content.to_dict()))


def serve(state: dict[str, LearnerReport]) -> None:
    """Serves health, readiness and, with the token, the report."""
    token = Path(os.environ[contract.ENV_TOKEN_FILE]).read_text()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            allowed = self.headers.get("Authorization") == f"Bearer {token}"
            self.send_response(200 if allowed or not self.path.startswith("/v1/") else 401)
            self.end_headers()
            if self.path == contract.STATUS_PATH:
                self.wfile.write(state["report"].model_dump_json(by_alias=True).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ[contract.ENV_HTTP_PORT])), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
