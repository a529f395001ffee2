"""`rltrain stack` of processes that write to a run's logs."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command_line import refused, rltrain, succeeded
from rltraining import stack
from rltraining.jobfile import load

PRINTS = "from rltraining_trainer.process import print_stacks_on_signal; print_stacks_on_signal()"
WAITS = """
def solve_the_maze():
    print("ready", flush=True)
    print("a line of the log", file=__import__("sys").stderr, flush=True)
    input()
solve_the_maze()
"""

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")


@pytest.fixture
def run(file: Path) -> Path:
    """The folder of a run without processes."""
    folder = file.parent / "run"
    (folder / "logs").mkdir(parents=True)
    load(str(file)).save(folder / "job.yaml")
    return folder


@pytest.fixture
def start() -> Iterator[Callable[[Path, str], subprocess.Popen[str]]]:
    """`start(log, program)` starts a program with this log. Returns when it has printed a line."""
    started = []

    def start(log: Path, program: str) -> subprocess.Popen[str]:
        with log.open("ab") as output:
            command = [sys.executable, "-c", program]
            pipe = subprocess.PIPE
            process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=output, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


Start = Callable[[Path, str], subprocess.Popen[str]]


def test_the_stacks_of_all_processes_are_printed_without_other_lines_of_their_logs(
    run: Path, start: Start
) -> None:
    first = start(run / "logs" / "cartpole-sampler-0.log", PRINTS + WAITS)
    second = start(run / "logs" / "cartpole-learner-0.log", PRINTS + WAITS)
    lines = succeeded("stack", run).splitlines()
    assert [line.partition(":")[0] for line in lines if line.startswith("cartpole")] == [
        f"cartpole-learner-0, process {second.pid}",
        f"cartpole-sampler-0, process {first.pid}",
    ]
    assert sum("in solve_the_maze" in line for line in lines) == 2
    assert "a line of the log" not in lines
    assert first.poll() is None
    only = succeeded("stack", run, "sampler-0")
    assert only.startswith("cartpole-sampler-0, process ")
    assert only.count("in solve_the_maze") == 1
    assert refused("stack", run, "sampler-1") == (
        f"sampler-1: is no running member of {run}: it has cartpole-learner-0, cartpole-sampler-0"
    )


def test_a_process_that_does_not_handle_the_signal_is_left_alone(run: Path, start: Start) -> None:
    process = start(run / "logs" / "cartpole-sampler-0.log", WAITS)
    assert "not a process of the trainer, or still starting" in succeeded("stack", run)
    assert process.poll() is None


def test_a_process_that_does_not_answer_is_reported(
    run: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stack, "ANSWER_SECONDS", 0.2)
    never = "import signal as s; s.signal(s.SIGUSR1, print); s.pthread_sigmask(s.SIG_BLOCK, [s.SIGUSR1])"
    process = start(run / "logs" / "cartpole-sampler-0.log", never + WAITS)
    while "S (sleeping)" not in Path(f"/proc/{process.pid}/status").read_text():
        time.sleep(0.001)
    result = rltrain("stack", run)
    assert result.exit_code == 1
    assert "has printed no stack within 0.2 s: its state is S (sleeping)" in result.stderr


def test_a_link_among_the_logs_leads_to_no_process(run: Path, start: Start, tmp_path: Path) -> None:
    start(tmp_path / "other.log", PRINTS + WAITS)
    (run / "logs" / "cartpole-sampler-0.log").symlink_to(tmp_path / "other.log")
    assert refused("stack", run, code=1) == f"{run}: none of its processes runs"


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    assert refused("stack", tmp_path) == f"{tmp_path}: holds no run: name the folder of a run"
    (tmp_path / "sweep.json").write_text("{}")
    assert refused("stack", tmp_path) == f"{tmp_path}: holds a sweep: name the folder of one of its runs"
