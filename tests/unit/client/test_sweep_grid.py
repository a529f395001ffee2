"""The jobs of a sweep, and errors in the options that define them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rltraining.errors import UsageError
from rltraining.sweep.grid import RUNS_MAX, Point, points, split
from rltraining.sweep.names import NAME_MAX, folder_names, short_paths, titled
from rltraining.sweep.plan import Request, plan, values_of
from rltraining_api.names import LABEL_SWEEP

RATE = "spec.algorithm.impala.learningRate"


def problems(file: Path, *sweeps: str, seeds: int | None = None) -> list[str]:
    with pytest.raises(UsageError) as caught:
        plan(str(file), (), Request(sweeps, seeds))
    return [problem.replace(f"{file}: ", "") for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("{a: [1, 2]}, null", ["{a: [1, 2]}", "null"]),
        ("\"a,b\",'c,d',e", ['"a,b"', "'c,d'", "e"]),
        ("it's,fine", ["it's", "fine"]),
        ("a,,b", ["a", "", "b"]),
        ("", [""]),
    ],
)
def test_values_end_at_commas_outside_of_brackets_and_quotes(text: str, parts: list[str]) -> None:
    assert split(text) == parts


@given(st.lists(st.recursive(st.none() | st.booleans() | st.integers() | st.text("ab,[]{}'\" :"),
                             lambda inner: st.lists(inner, max_size=3), max_leaves=5), min_size=1, max_size=4))  # fmt: skip
def test_json_values_are_split_into_themselves(values: list[object]) -> None:
    assert [json.loads(part) for part in split(",".join(map(json.dumps, values)))] == values


def test_the_grid_has_every_combination_and_the_seeds_of_a_point_follow_each_other(file: Path) -> None:
    sweeps = ("algorithm.impala.learningRate=1e-4,3e-4", "spec.network.mlp.hiddenSizes=[64],[64,64]")
    runs = plan(str(file), ("seed=5",), Request(sweeps, 2)).runs
    assert [run.name for run in runs] == [
        f"learningRate={rate},hiddenSizes={sizes},seed={seed}"
        for rate in ("0.0001", "0.0003")
        for sizes in ("64", "64-64")
        for seed in (5, 6)
    ]
    last = runs[-1].file.job
    assert last.spec.algorithm.impala is not None
    assert last.spec.network.mlp is not None
    assert (last.spec.algorithm.impala.learning_rate, last.spec.network.mlp.hidden_sizes) == (3e-4, (64, 64))
    assert (last.spec.seed, last.metadata.name) == (6, "cartpole-7")
    assert values_of(last) == {RATE: 3e-4, "spec.network.mlp.hiddenSizes": [64, 64]}
    assert (last.metadata.labels or {})[LABEL_SWEEP] == "cartpole"


def test_seeds_alone_are_a_sweep_and_a_sweep_of_the_seed_names_them(file: Path) -> None:
    assert [run.name for run in plan(str(file), (), Request(seeds=3)).runs] == ["seed=0", "seed=1", "seed=2"]
    named = plan(str(file), (), Request(("seed=7,3", "sampler.replicas=1,2"))).runs
    assert [run.name for run in named][:3] == [
        "replicas=1,seed=7",
        "replicas=1,seed=3",
        "replicas=2,seed=7",
    ]


def test_a_manifest_that_is_whole_only_with_the_sweep_can_be_swept(tmp_path: Path, manifest: str) -> None:
    file = tmp_path / "part.yaml"
    file.write_text(manifest.replace("  algorithm: {impala: {}}\n", ""))
    runs = plan(str(file), (), Request(("algorithm={impala: {}},{a2c: {}}",))).runs
    assert [(run.name, run.file.job.spec.algorithm.name) for run in runs] == [
        ("algorithm=impala,seed=0", "impala"),
        ("algorithm=a2c,seed=0", "a2c"),
    ]


@pytest.mark.parametrize(
    ("sweep", "problem"),
    [
        ("learningRate", "must be path=value,value, as in algorithm.impala.learningRate=1e-4,3e-4"),
        ("a..b=1,2", "'a..b' is not a path, as in spec.environment.numEnvs"),
        ("seed=1", "one value is no sweep: give several with commas between, or use --set"),
        (f"{RATE}=1e-4,0.0001", "0.0001 is listed twice among the values"),
        ("seed=1,,2", "a value is missing: null removes a field, '' is empty text"),
        ("metadata.name=a,b", "only fields of spec can be swept"),
        ("seed=[1,2", "a bracket is not closed"),
        ("seed='a,b", "a quote is not closed"),
        ("seed=1],2", "']' closes nothing"),
        ("seed=1,x", "seeds must be whole numbers"),
        ("sampler.x=!!binary aGk=,1", "!!binary aGk= is not a JSON value: leave out the tag"),
        ("sampler.x=1,1e400", "1e400 is not a JSON value: numbers must be finite"),
    ],
)
def test_an_option_that_is_wrong_is_named(sweep: str, problem: str, file: Path) -> None:
    assert problems(file, sweep) == [f"--sweep {sweep}: {problem}"]


def test_what_does_not_go_together_is_told(file: Path) -> None:
    for sweeps, seeds, problem in (
        (("seed=1,2",), 2, "--seeds and --sweep spec.seed exclude each other: leave one out"),
        (
            (f"{RATE}=1,2", f"{RATE[5:]}=3,4"),
            None,
            f"--sweep {RATE}: is given twice: give all its values in one list",
        ),
        (
            (f"{RATE}=1,2", "algorithm={a2c: {}},{ppo: {}}"),
            None,
            f"--sweep {RATE}: is a part of spec.algorithm, which is set after it: leave one out",
        ),
        (
            ("seed.x=1,2",),
            None,
            "--sweep spec.seed.x: is a part of spec.seed, which is set after it: leave one out",
        ),
        ((), 0, "--seeds: must be at least 1, got 0"),
        (
            ("sampler.replicas=1,2",),
            RUNS_MAX // 2 + 1,
            f"the sweep makes {RUNS_MAX + 2} runs, more than {RUNS_MAX}",
        ),
        ((), 10**20, f"the sweep makes {10**20:,} runs, more than {RUNS_MAX}"),
    ):
        (told,) = problems(file, *sweeps, seeds=seeds)
        assert told.startswith(problem)


def test_names_of_jobs_leave_room_for_those_of_their_pods(file: Path) -> None:
    assert len(plan(str(file), (), Request(seeds=10), "a" * 48).runs) == 10
    with pytest.raises(
        UsageError, match=r"would be called a+-10, longer than 50 characters: shorten the name"
    ):
        plan(str(file), (), Request(seeds=11), "a" * 48)


def test_every_job_is_checked_and_a_problem_is_told_once_with_its_points(file: Path) -> None:
    assert problems(file, "algorithm.impala.learningRat=1,2") == [
        "spec.algorithm.impala.learningRat: is not a known field: did you mean learningRate?"
    ]
    assert problems(file, f"{RATE}=1e-4,abc,100", seeds=2) == [
        f'learningRate=abc,seed=0 (and 1 more): {RATE}: must be a number, got "abc"',
        f"learningRate=100,seed=0 (and 1 more): {RATE}: must be at most 10, got 100",
    ]


def test_a_path_is_shortened_to_what_tells_it_from_the_others() -> None:
    paths = ["spec.learner.replicas", "spec.sampler.replicas", RATE]
    assert list(short_paths(paths).values()) == ["learner.replicas", "sampler.replicas", "learningRate"]
    assert titled({RATE: 1e-5, "spec.environment.id": "CartPole-v1"}) == "learningRate=1e-05,id=CartPole-v1"


@pytest.mark.parametrize(
    ("value", "title", "folder"),
    [
        ({"impala": {}}, "impala", "impala"),
        ({"ppo": {"epochs": 2, "discount": 0.9}}, "ppo(epochs=2,discount=0.9)", "ppo-epochs=2,discount=0.9"),
        ({"entryPoint": {"module": "a", "parameters": {"rate": 0.01}}}, "a(rate=0.01)", "a-rate=0.01"),
        ({"entryPoint": "nets:torso"}, '{"entryPoint":"nets:torso"}', "-entryPoint-nets-torso-"),
    ],
)
def test_an_algorithm_is_called_by_its_name_and_settings_and_one_s_own_by_its_module(
    value: object, title: str, folder: str
) -> None:
    assert titled({"spec.algorithm": value}) == f"algorithm={title}"
    assert folder_names([Point(0, {"spec.algorithm": value})]) == [f"algorithm={folder},seed=0"]


NASTY = st.text("aA./\\ *'\"[]-é\n", max_size=5)


@given(
    st.lists(
        st.dictionaries(NASTY, NASTY | st.lists(st.integers(0, 3), max_size=2), min_size=1, max_size=2),
        max_size=5,
    )
)
def test_names_of_folders_are_safe_and_no_two_are_alike(values: list[dict[str, object]]) -> None:
    names = folder_names([Point(0, {f"spec.{key}": value for key, value in each.items()}) for each in values])
    assert len({name.lower() for name in names}) == len(values)
    for name in names:
        assert name
        assert Path(name).name == name
        assert name[0] not in "-."
        assert len(name) <= NAME_MAX + 4
        assert not set(name) & set("/\\ *?[]{}'\"$&;|<>\n")


def test_a_point_is_set_as_with_the_option_of_that_name() -> None:
    point = Point(3, {"spec.a": [1, "x, y"], "spec.b": None})
    assert point.changes == ('spec.a=[1, "x, y"]', "spec.b=null", "spec.seed=3")
    assert points((), 2, 4) == (Point(4), Point(5))
