"""`world.replay`, `world.trajectories`, `world.count`: each item is counted once, also after deaths."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data_members import FakeEndpoint, Job, Learner, Sampler
from own_runs import make_context
from rltraining_api.algorithms import Aggregate
from rltraining_trainer.dataflow import NO_MOMENTS
from rltraining_trainer.dataflow.replay import ReplayBatch
from rltraining_trainer.transport import RemoteError, Stopped
from rltraining_trainer.world import Gradient, World, reporter, session
from rltraining_trainer.world.replay import Replay
from rltraining_trainer.world.reporter import Reporter
from rltraining_trainer.world.session import Connections
from rltraining_trainer.world.trajectories import Trajectories


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    job = Job(tmp_path)
    monkeypatch.setattr(session, "discover", job.discover)
    members: list[Sampler] = []
    job.sampler = lambda *args, **kwargs: members.append(Sampler(job, *args, **kwargs)) or members[-1]  # type: ignore[attr-defined]
    yield job
    for member in members:
        member.close()


def numbers(*values: int) -> dict[str, Any]:
    return {"number": np.array(values)}


def sample(learner: Learner) -> ReplayBatch:
    batch = learner.replay.sample(timeout=60.0)
    assert batch is not None, "no batch within a minute"
    return batch


def test_a_batch_samples_all_shards_by_priority_and_updates_priorities(job: Any) -> None:
    learner = Learner(job, priority_exponent=1.0, importance_exponent=1.0, batch_size=8)
    for number, weight in enumerate((1.0, 3.0)):
        sampler = job.sampler(number, priority_exponent=1.0)
        sampler.replay.extend(numbers(number, number), [weight, weight])
    counts = torch.zeros(2)
    for _ in range(50):
        batch = sample(learner)
        counts += torch.bincount(batch["number"], minlength=2)
        # The first batch may have been sampled before the other shard was reported.
        if len(batch.shards) == 2:
            assert batch.weights.unique().tolist() == pytest.approx([1 / 3, 1.0])
        learner.replay.update_priorities(batch, 1.0 + 2.0 * batch["number"])
    assert counts[1] / counts.sum() == pytest.approx(0.75, abs=0.05)
    with pytest.raises(KeyError, match="numbers: the batch has number"):
        batch["numbers"]
    with pytest.raises(ValueError, match="not in use"):
        learner.replay.update_priorities(batch, batch["number"])
    for _ in range(20):
        learner.replay.update_priorities(batch := sample(learner), batch["number"])
    assert batch["number"].unique().tolist() == [1], "an item of priority 0 was sampled"
    assert learner.counters()["replay/prioritiesApplied"] > 0


def test_samplers_and_learner_wait_for_each_other(job: Any) -> None:
    settings = {"minimum": 20, "samples_per_insert": 2.0}
    learner, sampler = Learner(job, **settings), job.sampler(**settings)
    inserting = threading.Thread(target=lambda: [sampler.replay.extend(numbers(i)) for i in range(200)])
    inserting.start()
    while inserting.is_alive():
        batch = learner.replay.sample(timeout=0.01)
        if batch is not None:
            learner.replay.update_priorities(batch, torch.ones(len(batch)))
    inserting.join()
    found = learner.counters()
    bound = 2 * 4 + 5 * 4  # two batches, and the prefetched batches
    assert found["replay/sampled"] == pytest.approx(2.0 * (found["replay/inserted"] - 20), abs=bound)


def test_items_of_a_dead_sampler_count_as_lost(job: Any) -> None:
    learner, first, other = Learner(job), job.sampler(0), job.sampler(1)
    first.replay.extend(numbers(1, 2, 3, 4))
    other.replay.extend(numbers(5, 6))
    learner.replay.update_priorities(sample(learner), torch.ones(4))
    first.die()
    again = job.sampler(0)
    again.replay.extend(numbers(7))
    found = learner.counters()
    assert (found["replay/inserted"], found["replay/size"], found["replay/lost"]) == (7, 3, 4)
    assert found["replay/restarted"] == 1


def test_a_learner_continues_its_counters_and_finds_the_shards_again(job: Any) -> None:
    learner, sampler = Learner(job), job.sampler()
    sampler.reporter.count(10, 1, torch.tensor([5.0]))
    sampler.replay.extend(numbers(1, 2, 3, 4))
    learner.replay.update_priorities(sample(learner), torch.ones(4))
    sampler.queue.put({"reward": torch.ones(2)})
    while learner.run.active() and learner.run.report().progress.environment_steps < 10:
        learner.run.update(loss=0.5)
    updates, before = learner.run.updates, learner.counters()
    learner.die(checkpoint=True)

    sampler.reporter.count(7, 0, torch.zeros(0))
    learner = Learner(job)
    assert learner.run.updates == updates
    sampler.replay.extend(numbers(5))
    batch = sample(learner)
    assert set(batch["number"].tolist()) <= {1, 2, 3, 4, 5}
    while learner.run.active() and learner.run.report().progress.environment_steps < 17:
        learner.run.update(loss=0.5)
    report = learner.run.report()
    assert (report.progress.environment_steps, report.progress.episodes) == (17, 1)
    found = learner.counters()
    assert (found["replay/inserted"], found["replay/lost"]) == (5, 0)
    assert found["replay/sampled"] >= before["replay/sampled"]
    assert report.replay is not None
    assert report.replay.inserted == 5


def test_a_repeated_report_counts_once(job: Any) -> None:
    learner, sampler = Learner(job), job.sampler()
    sampler.reporter.count(10, 2, torch.tensor([1.0, 2.0]))
    while not (deltas := learner.run.paths.take_stats()):
        pass
    assert [(found.steps, found.episodes) for found in deltas] == [(10, 2)]
    message = {"incarnation": sampler.endpoint.incarnation, "sequence": 1, "version": -1, "steps": 10}
    message |= {"episodes": 2, "returns": torch.zeros(2), "moments": NO_MOMENTS, "shard": None}
    answer = job.call(sampler.name, learner.endpoint.url, "report/push", message).result()
    assert answer["done"] is False
    assert learner.run.paths.take_stats() == []


def test_counters_returns_and_moments_arrive_exactly_once_if_requests_and_answers_are_lost(job: Any) -> None:
    learner, sampler = Learner(job), job.sampler()
    fates = cycle(("answer lost", "arrives", "request lost", "answer lost", "answer lost", "arrives"))
    job.fate = lambda service: next(fates) if service == "report/push" else "arrives"
    deltas: list[Any] = []
    for number in range(1, 13):
        moments = torch.full((1, 3), float(number), dtype=torch.float64)
        sampler.reporter.count(number, 1, torch.tensor([float(number)]), [moments])
        sampler.reporter.request()
        while sum(one.episodes for one in deltas) < number:
            deltas += learner.run.paths.take_stats()
    sampler.close()  # after the report in transit
    deltas += learner.run.paths.take_stats()

    numbers = list(range(1, 13))
    assert sum(one.steps for one in deltas) == sum(numbers)
    assert sum(one.episodes for one in deltas) == len(numbers)
    assert torch.cat([one.returns for one in deltas]).tolist() == numbers
    assert torch.cat(learner.run.take_moments())[:, 0].tolist() == numbers
    assert learner.run.take_moments() == []


def until(condition: Any) -> None:
    """Waits until another member's thread has made a condition true."""
    pause = threading.Event()
    for _ in range(30_000):
        if condition():
            return
        pause.wait(0.002)
    raise AssertionError("not within a minute")


def test_parameters_are_loaded_in_extend_and_never_while_the_sampler_acts(job: Any) -> None:
    learner, parameters = Learner(job), torch.zeros(3)
    learner.run.publish(torch.ones(3))
    sampler = job.sampler(0, parameters)
    assert parameters.tolist() == [1.0] * 3
    version = sampler.replay.version

    learner.run.publish(torch.full((3,), 2.0))
    sampler.reporter.count(1, 0, torch.zeros(0))
    sampler.replay.refresh()
    until(lambda: sampler.reporter._session.newest)
    assert (parameters.tolist(), sampler.replay.version) == ([1.0] * 3, version)
    sampler.reporter.count(1, 0, torch.zeros(0))
    sampler.replay.refresh()
    until(lambda: learner.run.paths.reports._counted[sampler.name].steps == 2)
    assert parameters.tolist() == [1.0] * 3

    inserting = threading.Thread(target=lambda: sampler.replay.extend(numbers(1)))
    inserting.start()
    while inserting.is_alive():
        learner.replay.tick()
    assert parameters.tolist() == [2.0] * 3
    assert sampler.replay.version == learner.run.models.version


def test_a_sampler_starts_with_the_parameters_of_the_first_publication(job: Any) -> None:
    learner, parameters = Learner(job), torch.zeros(3)
    starting = threading.Thread(target=lambda: job.sampler(0, parameters))
    starting.start()
    until(lambda: learner.run.models.unpublished)
    with pytest.raises(RuntimeError, match=r"call run\.publish\(parameters\) before replay\.sample\(\)"):
        learner.replay.sample()
    assert starting.is_alive()
    learner.run.publish(torch.ones(3))
    starting.join(60.0)
    assert parameters.tolist() == [1.0] * 3
    assert learner.replay.sample(0.0) is None


def test_a_sampler_that_waits_for_the_first_parameters_can_end(job: Any) -> None:
    learner, stopping = Learner(job), threading.Event()
    connections = Connections(replace(job.context, stopping=stopping), FakeEndpoint(job, "pole-sampler-0"))  # type: ignore[arg-type]
    threading.Thread(target=lambda: until(lambda: learner.run.models.unpublished) or stopping.set()).start()
    with pytest.raises(Stopped):
        Reporter(connections).attach(torch.zeros(3))


def test_parameters_that_arrive_during_a_load_are_loaded_by_the_next(
    job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version always matches the loaded parameters, and no parameters are skipped."""
    learner, parameters = Learner(job), torch.zeros(3)
    learner.run.publish(torch.ones(3))
    sampler = job.sampler(0, parameters)
    sampler.close()  # this test receives instead of the thread
    sampler.stopping.clear()
    link = sampler.reporter._session

    def receive(version: int, value: float) -> None:
        link._accept({"version": version, "parameters": torch.full((3,), value), "done": False})

    def load(flat: torch.Tensor, values: torch.Tensor) -> None:
        if values[0] == 2.0:
            receive(12, 3.0)
        flat.copy_(values)

    monkeypatch.setattr(reporter, "load_flat", load)
    receive(11, 2.0)
    sampler.reporter.load()
    assert (parameters[0].item(), sampler.reporter.version) == (2.0, 11)
    sampler.reporter.load()
    assert (parameters[0].item(), sampler.reporter.version) == (3.0, 12)


def test_items_are_taken_in_order_and_each_once(job: Any) -> None:
    learner, sampler = Learner(job, capacity=2), job.sampler()
    putting = threading.Thread(target=lambda: [sampler.queue.put({"number": i}) for i in range(6)])
    putting.start()
    assert [item["number"] for item in learner.queue.get(5, timeout=60.0)] == [0, 1, 2, 3, 4]
    putting.join()
    assert [item["number"] for item in learner.queue.get(1, timeout=60.0)] == [5]
    for repeated in range(2):
        payload = {"incarnation": sampler.endpoint.incarnation, "sequence": 6, "version": -1}
        payload["item"] = {"number": repeated}
        job.call(sampler.name, learner.endpoint.url, "trajectories/push", payload)
    found = learner.counters()
    assert (found["unrolls/pushed"], found["unrolls/used"], found["unrolls/queued"]) == (6, 6, 0)


def test_items_are_taken_once_if_answers_are_lost(job: Any) -> None:
    learner, sampler = Learner(job, capacity=100), job.sampler()
    fates = cycle(("answer lost", "arrives", "request lost", "answer lost", "arrives"))
    job.fate = lambda service: next(fates) if service == "trajectories/push" else "arrives"
    for number in range(10):
        sampler.queue.put(number)
    sampler.queue._session.settle()
    assert learner.queue.get(10, timeout=60.0) == list(range(10))
    assert learner.queue.get(1, timeout=0.0) == []
    assert learner.counters()["unrolls/pushed"] == 10


def test_a_dead_learners_queue_is_dropped_and_an_incomplete_batch_is_kept(job: Any) -> None:
    learner, sampler = Learner(job, capacity=4), job.sampler()
    for number in range(3):
        sampler.queue.put(number)
    assert learner.queue.get(2, timeout=60.0) == [0, 1]
    assert learner.queue.get(2, timeout=0.0) == []
    sampler.queue.put(3)
    assert learner.queue.get(2, timeout=60.0) == [2, 3]
    sampler.queue.put(4)
    learner.die(checkpoint=True)
    learner = Learner(job, capacity=4)
    found = learner.counters()
    assert (found["unrolls/pushed"], found["unrolls/used"], found["unrolls/dropped"]) == (5, 4, 1)
    for number in (5, 6):
        sampler.queue.put(number)
    assert learner.queue.get(1, timeout=60.0) == [5]


def test_blocked_calls_raise_stopped_when_the_process_should_end(job: Any) -> None:
    learner, sampler = Learner(job, minimum=100), job.sampler(minimum=100)
    sampler.replay.extend(numbers(1))
    assert learner.replay.sample(timeout=0.0) is None
    learner.stopping.set()
    for wait in (learner.replay.sample, learner.queue.get):
        with pytest.raises(Stopped):
            wait()
    sampler.queue.put(1)
    sampler.stopping.set()
    with pytest.raises(Stopped):
        sampler.queue.put(2)


def test_a_message_that_is_no_push_is_refused_by_its_field(job: Any) -> None:
    push = {"incarnation": "a", "version": -1}
    call = job.call("stranger", Learner(job).endpoint.url, "trajectories/push", push)
    with pytest.raises(RemoteError, match="the field sequence must be a int, not NoneType"):
        call.result()


REPLAY = {"capacity": 100, "batch_size": 4}
SYNC = Aggregate(mode="Sync", count=1)


@pytest.mark.parametrize(
    ("pod", "use", "error", "message"),
    [
        ("pole-learner-0", lambda w: w.replay(**REPLAY).extend({}), RuntimeError, "extend.* is for samplers"),
        ("pole-learner-0", lambda w: w.trajectories().put(1), RuntimeError, "put.* is for samplers"),
        ("pole-learner-0", lambda w: w.count(1), RuntimeError, "a learner counts with run.update"),
        ("pole-learner-0", lambda w: [w.replay(**REPLAY) for _ in "12"], RuntimeError, "called twice"),
        (
            "pole-learner-0",
            lambda w: w.replay(capacity=0, batch_size=4),
            ValueError,
            r"^world\.replay\(\): capacity: must be at least 1, got 0$",
        ),
        (
            "pole-learner-0",
            lambda w: w.replay(capacity=100, minimum=500, batch_size=4),
            ValueError,
            r"^world\.replay\(\): capacity must be at least minimum \(500\), got 100$",
        ),
        ("pole-sampler-0", lambda w: w.replay(batch_size=0), ValueError, "batch_size: must be at least 1"),
        (
            "pole-sampler-0",
            lambda w: w.replay(**REPLAY).sample(),
            RuntimeError,
            "sample.* is for the learner",
        ),
        (
            "pole-sampler-0",
            lambda w: w.replay(**REPLAY).extend(numbers(1)),
            RuntimeError,
            r"^call world\.start\(\) before replay\.extend\(\)$",
        ),
        (
            "pole-sampler-0",
            lambda w: w.trajectories().put({"number": 1}),
            RuntimeError,
            r"^call world\.start\(\) before trajectories\.put\(\)$",
        ),
        (
            "pole-sampler-0",
            lambda w: w.gradients(SYNC, 3).push(Gradient(torch.zeros(3), 1.0, {})),
            RuntimeError,
            r"^call world\.start\(\) before gradients\.push\(\)$",
        ),
        (
            "pole-sampler-0",
            lambda w: w.gradients(SYNC, 3).attach(None),
            RuntimeError,
            r"call world\.start\(parameters\)",
        ),
        ("pole-sampler-0", lambda w: w.trajectories().get(), RuntimeError, "get.* is for learners"),
        ("pole-sampler-0", lambda w: w.count(-1), ValueError, "steps must be at least 0"),
    ],
)
def test_a_method_of_the_other_role_or_a_bad_argument_is_refused(
    tmp_path: Path, pod: str, use: Any, error: type[Exception], message: str
) -> None:
    world = World(make_context(tmp_path, pod), lambda failure: None)
    with pytest.raises(error, match=message):
        use(world)
    world.close()


def test_both_roles_get_the_public_types(tmp_path: Path) -> None:
    for pod in ("pole-learner-0", "pole-sampler-0"):
        world = World(make_context(tmp_path, pod), lambda failure: None)
        assert isinstance(world.replay(**REPLAY), Replay)
        assert isinstance(world.trajectories(), Trajectories)
        world.close()
