"""Recorded updates can be made again, bit for bit, although samplers and learners were killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import training_program  # registers the environments of the jobs
from rltraining_api.contract import ENV_OUTPUT_DIR, ENV_POD_NAME
from rltraining_trainer.dataflow.frames import FrameWriter, read_frames
from rltraining_trainer.errors import BadConfiguration
from rltraining_trainer.roles.rerun import Rerun
from rltraining_trainer.world.recorder import FOLDER
from small_jobs import CODE, GRADIENTS, REPLAY, code, job_of, small_job
from training import LEARNER, SAMPLER, Run, Train

assert training_program


@pytest.fixture(autouse=True)
def _member(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The environments need these variables. A rerun sets the number of threads."""
    monkeypatch.setenv(ENV_OUTPUT_DIR, str(tmp_path))
    monkeypatch.setenv(ENV_POD_NAME, LEARNER)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


HUGE = """
import gymnasium as gym


class Huge(gym.Wrapper):
    steps = 0

    def step(self, action):
        self.steps += 1
        observation, reward, *end = self.env.step(action)
        return observation, 1e25 if self.steps > 50 else reward, *end


gym.register("Huge-v0", entry_point=lambda game: Huge(gym.make(game)))
"""


FALLING = """
import gymnasium as gym


class Falling(gym.Wrapper):
    steps = 0

    def step(self, action):
        self.steps += 1
        observation, reward, *end = self.env.step(action)
        return observation, 0.0 if self.steps > 400 else reward, *end


gym.register("Falling-v0", entry_point=lambda game: Falling(gym.make(game)), max_episode_steps=20)
"""


async def until_updates(run: Run, more: int = 4) -> int:
    """Waits for N further updates. Returns their number."""
    goal = (run.job.status.progress.updates or 0) + more
    job = await run.until(lambda job: (job.status.progress.updates or 0) >= goal)
    return job.status.progress.updates or 0


def import_again(train: Train, monkeypatch: pytest.MonkeyPatch, **modules: str) -> None:
    """Lets this process import the user's modules of a run."""
    folder = train.workdir / "code"
    folder.mkdir()
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(folder)


def rerun_of(folder: Path, **options: Any) -> Rerun:
    rerun = Rerun(folder, **options)
    rerun.run()
    return rerun


@pytest.mark.parametrize("algorithm", ["impala", "a3c", "ppo", "ppoAtSamplers", "r2d2", "sac"])
def test_updates_of_a_disturbed_run_are_made_again(train: Train, algorithm: str) -> None:
    async def kills(run: Run) -> None:
        await until_updates(run)
        run.kill(SAMPLER)
        steps = run.steps
        await run.until(lambda job: job.status.checkpoint is not None and job.status.checkpoint.step >= steps)
        updates = await until_updates(run, 0)
        run.kill(LEARNER)
        await run.until(lambda job: job.status.learner.restarts == 1)
        await run.until(lambda job: (job.status.progress.updates or 0) > updates)
        await run.finish()
        if not torch.cuda.is_available():
            assert f"no GPU is visible. Threads that compute: {threads}" in run.log(LEARNER)

    threads = 2 if algorithm == "ppo" else 1
    train(job_of(algorithm, learner={"threads": threads}, recording={"megabytes": 100}), kills)

    # All states are equal, also where the second incarnation of the learner continued from the checkpoint.
    files = sorted((train.workdir / FOLDER).iterdir())
    states = [next(read_frames(path)) for path in files]
    assert [state["threads"] for state in states] == [threads, threads]
    assert states[1]["update"] > 0, "the checkpoint includes updates"
    rerun = rerun_of(train.workdir)
    assert rerun.differs_at is None
    assert rerun.updates[0] == 0
    assert rerun.updates[-1] >= states[1]["update"]
    assert rerun.gaps == []
    assert rerun.compared >= len(rerun.updates) - 1, "only an update that a kill has cut short has no state"
    assert not rerun.used_twice
    assert bool(rerun.items) == (algorithm not in ("r2d2", "sac")), (
        "a replay returns items as often as it likes"
    )

    # A part can be made again too.
    first, last = rerun.updates[1], rerun.updates[-2]
    part = rerun_of(train.workdir, first=first, last=last)
    assert part.updates == rerun.updates[1:-1]
    assert part.differs_at is None


def test_a_drop_of_the_return_ends_the_recording(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(run: Run) -> None:
        ended = "the recording has ended: the mean return is "
        await run.until(lambda job: any(ended in warning for warning in job.status.warnings))
        await until_updates(run)
        await run.finish()

    environment = {
        "id": "falling:Falling-v0",
        "numEnvs": 4,
        "kwargs": {"game": "PacedCartPole-v1"},
        "normalize": {"observations": False, "rewards": False},
    }
    job = small_job(
        algorithm={"impala": {"unrollLength": 16}},
        environment=environment,
        recording={"megabytes": 100, "returnDrop": 5},
        code=CODE,
        stop={"environmentSteps": 10**9, "meanReturn": {"atLeast": 1000, "episodes": 20}},
    )
    train(job, scenario, code(falling=FALLING))
    import_again(train, monkeypatch, falling=FALLING)
    rerun = rerun_of(train.workdir)
    assert rerun.differs_at is None
    assert rerun.updates[0] == 0


def test_a_rerun_notices_other_data(train: Train, tmp_path: Path) -> None:
    async def short(run: Run) -> None:
        await until_updates(run)
        await run.finish()

    train(job_of("impala", recording={"megabytes": 100}), short)
    frames = list(read_frames(train.workdir / FOLDER / "000001.frames"))
    changed, *others = [frame for frame in frames if frame["kind"] == "update"]
    changed["sources"] = [changed["sources"][0]] * 2
    changed["batch"][0]["reward"] += 1e-6
    assert len(others) > 2
    (tmp_path / FOLDER).mkdir()
    writer = FrameWriter(tmp_path / FOLDER / "000001.frames")
    for frame in frames:
        writer.write(frame)
    writer.close()
    rerun = rerun_of(tmp_path)
    assert rerun.differs_at == 0
    assert rerun.updates == [0]
    assert rerun.used_twice == {changed["sources"][0]}


@pytest.mark.parametrize(
    ("algorithm", "settings", "game"),
    [
        ("impala", {"unrollLength": 16}, "CartPole-v1"),
        ("ppo", GRADIENTS["ppo"], "CartPole-v1"),
        ("sac", {"batchSize": 64, "replay": REPLAY}, "Pendulum-v1"),
        ("td3", {"batchSize": 64, "replay": REPLAY}, "Pendulum-v1"),
    ],
)
def test_an_update_that_diverges_is_kept_without_a_recording(
    train: Train, algorithm: str, settings: dict[str, Any], game: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = ""

    async def scenario(run: Run) -> None:
        nonlocal message
        job, _ = await run.until_failed()
        message = job.status.message or ""

    environment = {
        "id": "huge:Huge-v0",
        "numEnvs": 8,
        "kwargs": {"game": game},
        "normalize": {"observations": False, "rewards": False},
    }
    train(
        small_job(algorithm={algorithm: settings}, environment=environment, code=CODE),
        scenario,
        code(huge=HUGE),
    )

    # The rerun fails with the same error.
    import_again(train, monkeypatch, huge=HUGE)
    rerun = rerun_of(train.workdir)
    assert rerun.differs_at is None
    assert rerun.error is not None
    assert rerun.is_same_error
    assert rerun.recorded_error is not None
    assert rerun.recorded_error in message
    assert len(rerun.updates) == 1


def test_without_a_recording_the_remedy_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        BadConfiguration, match=r"nothing is recorded: train with --set recording\.megabytes=256"
    ):
        rerun_of(tmp_path)
