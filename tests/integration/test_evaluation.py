"""Evaluation during training survives kills of the evaluator and the learner."""

from __future__ import annotations

import psutil
from local_cluster_run import gone
from rltraining_api.evaluation import EvaluationStatus
from rltraining_trainer.policy import Policy
from small_jobs import CODE, code, small_job
from training import LEARNER, Run, Train

MODULE = "rltraining_trainer.evaluation.process"
POLES = f"""
import sys, time
import gymnasium as gym

class Pole(gym.Wrapper):
    def __init__(self):
        super().__init__(gym.make("CartPole-v1"))

    def step(self, action):
        time.sleep(0.0002)
        return self.env.step(action)

class Fails(Pole):
    def step(self, action):
        if {MODULE!r} in sys.orig_argv:
            raise ValueError("the pole is broken")
        return super().step(action)

gym.register("Pole-v0", entry_point=Pole)
gym.register("Fails-v0", entry_point=Fails)
"""
EVALUATED = {"evaluation": {"everySteps": 500, "episodes": 4}, "code": CODE}


def evaluator(run: Run) -> psutil.Process | None:
    """Returns the process beside the learner, or None before it has started."""
    children = run.process(LEARNER).children()
    return next((child for child in children if MODULE in child.cmdline()), None)


def status(run: Run) -> EvaluationStatus:
    return run.job.status.evaluation or EvaluationStatus()


def test_evaluations_survive_kills_and_the_best_policy_is_kept(train: Train) -> None:
    job = small_job(environment={"id": "poles:Pole-v0", "numEnvs": 8}, **EVALUATED)

    async def scenario(run: Run) -> None:
        await run.until(lambda job: status(run).count >= 1)
        process = evaluator(run)
        assert process is not None
        assert process.nice() > run.process(LEARNER).nice()
        environment = process.environ()
        assert (environment["CUDA_VISIBLE_DEVICES"], environment["OMP_NUM_THREADS"]) == ("", "1")

        # Kill the evaluator: a new one continues.
        process.kill()
        before = await run.until(lambda job: status(run).restarts == 1)
        assert before.status.evaluation is not None
        await run.until(lambda job: status(run).count > before.status.evaluation.count + 1)

        # Kill the learner: its evaluator ends with it, and the next learner continues the counts.
        await run.until(lambda job: job.status.checkpoint is not None and job.status.checkpoint.step > 500)
        second, life = evaluator(run), run.point["run"]
        assert second is not None
        best, count = status(run).best, status(run).count
        run.kill(LEARNER)
        await gone([second.pid])
        await run.until_another_life(life)
        assert best is not None
        await run.until(lambda job: status(run).count > count and status(run).restarts == 1)
        found = status(run).best
        assert found is not None
        assert found.mean_return is not None
        assert best.mean_return is not None
        assert found.mean_return >= best.mean_return, "the best policy is still there"

        # A rule about evaluations ends the run.
        last = evaluator(run)
        await run.cluster.update_spec(run.key, {"stop": {"evaluation": {"atLeast": 1}}})
        ended = (await run.until_succeeded()).status
        assert ended.message.startswith("stop.evaluation is met: the evaluation, of step ")
        await gone([last.pid] if last else [])
        check_results(run)

    train(job, scenario, code(poles=POLES))


def check_results(run: Run) -> None:
    """Checks that status, curves and stored policies agree."""
    found, progress = status(run), run.job.status.progress
    assert found.last is not None
    assert found.best is not None
    assert found.last.environment_steps == progress.environment_steps, "the last policy is evaluated too"
    assert found.last.episodes == 4
    folder = run.cluster.workdir
    assert found.best_policy_uri == f"file://{folder}/policy/best"
    best = Policy.load(str(folder / "policy" / "best"))
    assert best.description.evaluation == found.best
    assert best.description.program is not None
    assert Policy.load(str(folder / "policy")).description.evaluation is None
    points = [point for point in run.points if "evaluation/return" in point]
    steps = [point["evaluation/environmentSteps"] for point in points]
    assert steps == sorted(set(steps)), "each result is in the curves once"
    assert points[-1]["evaluation/return"] == found.last.mean_return
    assert all(point["evaluation/environmentSteps"] <= point["environmentSteps"] for point in points)
    assert not (folder / ".evaluation").exists()


def test_an_error_of_the_environment_in_an_evaluation_ends_the_job_with_its_traceback(train: Train) -> None:
    job = small_job(environment={"id": "poles:Fails-v0", "numEnvs": 8}, **EVALUATED)

    async def scenario(run: Run) -> None:
        ended, failed = await run.until_failed()
        assert (
            "environment 'poles:Fails-v0': step raised ValueError: the pole is broken" in ended.status.message
        )
        assert failed.reason == "UserCodeError"
        assert "evaluation at step" in failed.message
        assert 'raise ValueError("the pole is broken")' in failed.message

    train(job, scenario, code(poles=POLES))
