"""The run of a user's own algorithm: counters, checkpoints, restores and rejected calls."""

from __future__ import annotations

import gc
import json
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from own_runs import Begin, make_context
from rltraining_trainer.environments import Stepper
from rltraining_trainer.errors import BadConfiguration, Diverged, UserCodeError
from rltraining_trainer.networks import ActorCritic
from rltraining_trainer.roles.entry_point import find_functions
from rltraining_trainer.transport import Stopped
from rltraining_trainer.world import World
from rltraining_trainer.world.reporter import REPORT


@pytest.fixture
def begin(tmp_path: Path) -> Begin:
    return Begin(make_context(tmp_path))


def test_updates_are_counted_until_a_stop_rule_is_met(begin: Begin) -> None:
    run = begin()
    assert run.report().state == "Waiting"
    seen = 0
    while run.active():
        run.update(40, [1.0, 3.0], lag=2, loss=torch.tensor(0.25))
        seen += 1
    assert (seen, run.updates, run.done) == (3, 3, True)
    report = run.report()
    assert report.state == "Training"
    assert (report.progress.environment_steps, report.progress.episodes) == (120, 6)
    assert (report.progress.mean_return, report.progress.policy_lag) == (2.0, 2.0)
    run.finish()
    assert run.report().state == "Finished"
    assert run.report().stop_reason is not None
    run.close()
    points = [json.loads(line) for line in (begin.context.output / "progress.jsonl").read_text().splitlines()]
    assert (points[-1]["environmentSteps"], points[-1]["loss/loss"]) == (120, 0.25)


def test_an_update_before_the_function_returns_is_counted(begin: Begin) -> None:
    run = begin()
    for loss in (0.5, 0.25):
        assert run.active()
        run.update(20, [1.0], loss=torch.tensor(loss))
    run.finish()  # the function has returned, and not called `active` again
    report = run.report()
    assert (report.progress.environment_steps, report.progress.episodes) == (40, 2)
    assert report.stop_reason == "learner(world) returned"
    run.close()
    points = [json.loads(line) for line in (begin.context.output / "progress.jsonl").read_text().splitlines()]
    assert (points[-1]["updates"], points[-1]["environmentSteps"], points[-1]["loss/loss"]) == (2, 40, 0.25)
    resumed = begin()
    assert (resumed.updates, resumed.report().progress.environment_steps) == (2, 40)
    resumed.close()


def test_a_term_may_have_a_gradient(begin: Begin) -> None:
    run = begin()
    assert run.active()
    run.update(40, loss=torch.ones((), requires_grad=True) * 2)
    assert run.active()
    run.close()
    points = [json.loads(line) for line in (begin.context.output / "progress.jsonl").read_text().splitlines()]
    assert points[-1]["loss/loss"] == 2.0


def test_a_warning_of_the_algorithm_is_in_the_report(begin: Begin) -> None:
    run = begin()
    run.warn("LargeRewards", "rewards reach 1,000")
    assert [(one.reason, one.message) for one in run.report().warnings] == [
        ("LargeRewards", "rewards reach 1,000")
    ]


@pytest.mark.parametrize("updates", [0, 1])
def test_a_run_that_ends_without_an_update_has_a_warning(begin: Begin, updates: int) -> None:
    run = begin()
    assert run.active()
    assert run.report().warnings == ()
    if updates:
        run.update(120)
    else:
        run.count(120)
    assert not run.active()
    assert [one.reason for one in run.report().warnings] == ([] if updates else ["NothingLearned"])
    run.close()


class Moments:
    """Has a state like torch's optimizers, which load the compiler on first use, and that takes seconds."""

    def __init__(self, lr: float) -> None:
        self.groups = [{"lr": lr, "betas": (0.9, 0.999), "params": [0, 1]}]
        self.state: dict[int, dict[str, torch.Tensor]] = {}

    def step(self, policy: ActorCritic) -> None:
        for number, parameter in enumerate(policy.parameters()):
            mean = self.state.setdefault(number, {"mean": torch.zeros_like(parameter)})["mean"]
            parameter.data -= mean.add_(self.groups[0]["lr"])

    def state_dict(self) -> dict[str, Any]:
        return {"state": self.state, "param_groups": self.groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.state, self.groups = state_dict["state"], state_dict["param_groups"]


def test_a_run_goes_on_with_all_that_it_was_given(begin: Begin) -> None:
    policy, optimizer = begin.policy(), Moments(lr=0.5)
    run = begin(policy, optimizer=optimizer)
    for _ in range(2):
        assert run.active()
        optimizer.step(policy)
        run.update(10, [1.0])
    assert run.active()
    run.save()
    run.close()

    other, moments = begin.policy(), Moments(lr=0.1)
    again = begin(other, optimizer=moments)
    assert again.updates == 2
    assert again.report().progress.environment_steps == 20
    assert again.active()
    again.close()
    for mine, theirs in zip(policy.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert moments.groups == optimizer.groups
    assert moments.state.keys() == optimizer.state.keys()
    for number, kept in moments.state.items():
        assert torch.equal(kept["mean"], optimizer.state[number]["mean"])


def test_a_checkpoint_of_other_parts_is_refused(begin: Begin) -> None:
    run = begin(begin.policy())
    run.save()
    run.close()
    with pytest.raises(
        BadConfiguration, match=r"it holds \['policy'\], but world\.run\(\) was given \['table'\]"
    ):
        begin(table=torch.nn.Linear(1, 1))


def test_the_policy_is_written_in_the_end_and_the_reason_told(begin: Begin) -> None:
    run = begin(begin.policy())
    assert run.active()
    run.finish()
    report = run.report()
    run.close()
    assert report.stop_reason == "learner(world) returned"
    assert report.policy_uri is not None
    assert (begin.context.output / "policy" / "policy.json").exists()


@pytest.mark.parametrize(
    ("returns", "terms", "message"),
    [
        ([], {"loss": float("nan")}, "loss is nan at update 1"),
        ([], {"loss": torch.tensor(-torch.inf)}, "loss is -inf at update 1"),
        ([1.0, float("nan")], {}, "a return is nan at update 1"),
        (torch.tensor([torch.inf, -torch.inf]), {"loss": 1.0}, "a return is inf at update 1"),
    ],
)
def test_what_is_not_finite_ends_the_run(begin: Begin, returns: Any, terms: Any, message: str) -> None:
    run = begin()
    assert run.active()
    with pytest.raises(Diverged, match=f"^{message}$"):
        run.update(1, returns, **terms)
    run.close()


@pytest.mark.parametrize(
    ("counts", "error", "message"),
    [
        ({"steps": -5}, ValueError, "steps must be at least 0, not -5"),
        ({"steps": 2.5}, TypeError, "steps must be an integer, not 2.5"),
        ({"steps": torch.tensor(2.0)}, TypeError, r"steps must be an integer, not tensor\(2\.\)"),
        ({"steps": 1, "episodes": -1}, ValueError, "episodes must be at least 0, not -1"),
    ],
)
def test_what_is_no_count_is_refused_where_it_is_counted(
    begin: Begin, counts: Any, error: type[Exception], message: str
) -> None:
    run = begin()
    with pytest.raises(error, match=f"^{message}$"):
        run.update(**counts)
    assert run.updates == 0
    run.close()


def test_any_kind_of_integer_is_a_count(begin: Begin) -> None:
    run = begin()
    assert run.active()
    for steps in (np.int64(2), torch.tensor(3), True):
        run.update(steps)
    assert run.active()
    assert run.report().progress.environment_steps == 6
    run.close()


def test_a_policy_that_is_not_finite_is_neither_kept_nor_exported(begin: Begin) -> None:
    policy = begin.policy()
    run = begin(policy)
    assert run.active()
    run.save()
    with torch.no_grad():
        policy.value_head.bias.fill_(torch.nan)
    run.update(1)
    for end in (run.save, run.finish):
        with pytest.raises(
            Diverged,
            match=r"^the policy's parameter value_head\.bias is NaN or infinite at update 1: lower the "
            r"learning rate, or clip gradients or rewards, and continue from the newest checkpoint$",
        ):
            end()
    run.close()
    again = begin(begin.policy())
    assert again.updates == 0, "the checkpoint before is whole"
    again.close()
    assert not (begin.context.output / "policy").exists()


def test_a_learner_that_is_told_to_end_stops_at_the_head_of_its_loop(begin: Begin) -> None:
    run = begin()
    assert run.active()
    begin.context.stopping.set()
    with pytest.raises(Stopped):
        run.active()
    run.close()


def test_what_other_learners_tell_is_counted_once(begin: Begin) -> None:
    run = begin()
    message = {
        "incarnation": "other",
        "sequence": 1,
        "version": -1,
        "steps": 30,
        "episodes": 2,
        "returns": torch.tensor([4.0]),
        "shard": None,
    }
    for _ in range(2):  # the answer to it was lost
        begin.services.answer("pole-learner-1", ("pole-learner-0", REPORT, message))
    assert run.active()
    run.update(10)
    assert run.active()
    run.close()
    assert run.report().progress.environment_steps == 40
    assert run.report().progress.episodes == 2


def make_world(tmp_path: Path, pod: str) -> World:
    world = World(make_context(tmp_path, pod), lambda error: None)
    world.close()
    return world


def test_a_world_tells_who_this_is_and_who_else_there_is(tmp_path: Path) -> None:
    world = make_world(tmp_path, "pole-sampler-2")
    assert (world.name, world.role, world.index) == ("pole-sampler-2", "sampler", 2)
    assert world.parameters == {"learningRate": 0.5}
    assert world.spec.environment.id == "CartPole-v1"
    samplers = world.members("sampler")
    assert [member.name for member in samplers] == [f"pole-sampler-{index}" for index in range(3)]
    assert samplers[1] is world.member("pole-sampler-1")
    assert len(world.members("learner")) == 1
    assert len(world.members("replay")) == 0
    for stranger in ("pole-learner-1", "pole-replay-0", "cart-sampler-0", ""):
        with pytest.raises(KeyError):
            world.member(stranger)


def test_the_number_of_samplers_is_that_of_the_job_s_file(tmp_path: Path) -> None:
    world = make_world(tmp_path, "pole-learner-0")
    assert len(world.members("sampler")) == 3
    make_context(tmp_path, sampler={"replicas": 5})
    world._live._next_look = 0.0
    assert len(world.members("sampler")) == 5


def test_environments_that_nobody_uses_any_more_are_gone_and_their_steps_stay_counted(tmp_path: Path) -> None:
    world = make_world(tmp_path, "pole-sampler-0")

    def evaluate() -> weakref.ref[Stepper]:
        environments = world.environments(2)
        environments.reset(0)
        environments.step(np.zeros(2, np.int64))
        return weakref.ref(environments)

    used = [evaluate(), evaluate()]
    gc.collect()
    assert [each() for each in used] == [None, None]
    assert world._numbers()["sampler/environmentSteps"] == 4


def test_each_member_has_a_seed_of_its_own(tmp_path: Path) -> None:
    pods = ("pole-learner-0", "pole-sampler-0", "pole-sampler-1")
    seeds = [make_world(tmp_path, pod).seed for pod in pods]
    assert len(set(seeds)) == 3
    assert seeds == [make_world(tmp_path, pod).seed for pod in pods]
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_what_only_learners_have_is_refused_to_samplers(tmp_path: Path) -> None:
    world = make_world(tmp_path, "pole-sampler-0")
    with pytest.raises(RuntimeError, match="only learners are in a group"):
        _ = world.group
    with pytest.raises(RuntimeError, match=r"a sampler has world\.start\(\)"):
        world.run()
    world.stopping.set()
    with pytest.raises(Stopped):
        world.serve()


def test_services_are_registered_before_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TP_SOCKET_IFNAME", "lo")
    world = World(make_context(tmp_path, "pole-sampler-0"), lambda error: None)
    world.start()
    with pytest.raises(RuntimeError, match=r"register 'play' before world\.start\(\)"):
        world.register("play", lambda sender, payload: 1)
    with pytest.raises(RuntimeError, match="started before"):
        world.start()
    world.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "http"]


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("def learner(world): pass", "has no function sampler(world)"),
        ("sampler = learner = 3", "has no function learner(world)"),
        (None, "module 'mine' is not there: put it beside the manifest, in spec.code, or in the image"),
        ("import nonsense", "importing 'mine' raised ModuleNotFoundError: No module named 'nonsense'"),
        ("raise SystemExit(3)", "importing 'mine' raised SystemExit: 3"),
    ],
)
def test_a_module_that_is_no_algorithm_is_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str | None, message: str
) -> None:
    if module is not None:
        (tmp_path / "mine.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    with pytest.raises(UserCodeError, match=r"^spec\.algorithm\.entryPoint: ") as error:
        find_functions("mine")
    assert message in str(error.value).splitlines()[0]
    assert ("Traceback" in str(error.value)) == (" raised " in message)


@pytest.mark.parametrize("there", [True, False])
def test_a_module_is_named_without_its_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    if there:
        (tmp_path / "mine.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    with pytest.raises(UserCodeError) as error:
        find_functions("mine.py")
    assert str(error.value) == (
        "spec.algorithm.entryPoint: module 'mine.py' is not there: write 'mine', without .py"
    )
