"""Comparison of runs: statistics, order, table and curves."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from command_line import refused, rltrain, succeeded
from rltraining.compare.band import POINTS, band
from rltraining.compare.command import notes
from rltraining.compare.estimates import Estimate, Interval, estimates
from rltraining.compare.picture import SHOWN, draw
from rltraining.compare.result import Result
from rltraining.compare.row import Spread, rows, spread
from rltraining.compare.table import as_csv, as_json, estimates_table, table
from rltraining.jobfile import load
from rltraining.sweep import folder as sweep_folder
from rltraining.sweep.plan import Request, plan
from rltraining_api.curve import CurvePoint
from rltraining_api.status import Progress, Status

RATE = "spec.algorithm.impala.learningRate"
Curve = tuple[CurvePoint, ...]


def curve(*points: tuple[int, float]) -> Curve:
    """Returns a curve of steps and returns, at a thousand steps a second."""
    return tuple(
        CurvePoint(environment_steps=steps, seconds=steps / 1000, mean_return=mean_return)
        for steps, mean_return in points
    )


def run(
    rate: float | None, seed: int = 0, final: float | None = None, steps: int = 1000, **rest: Any
) -> Result:
    """Returns a run with a curve that leads straight to its final return."""
    return Result(
        **{
            "source": "sweep",
            "name": f"{rate},{seed}",
            "title": "impala on CartPole-v1",
            "seed": seed,
            "phase": "Succeeded",
            "values": {} if rate is None else {RATE: rate},
            "alike": "sweep",
            "mean_return": final,
            "curve": () if final is None else curve((0, 0.0), (steps, final)),
            **rest,
        }
    )


def order(*runs: Result) -> list[str]:
    return [row.label.removeprefix("learningRate=") for row in rows(runs)]


def test_a_spread_is_mean_and_deviation_of_the_sample_and_what_is_no_number_does_not_count() -> None:
    assert spread([1.0, 2.0, 6.0]) == Spread(3.0, pytest.approx(7**0.5), 3)
    assert spread([None, 3.0, float("nan"), float("inf")]) == Spread(3.0, None, 1)
    assert spread([None]) is None


def test_without_a_goal_the_higher_return_is_better_and_who_has_none_is_last() -> None:
    runs = [run(1, final=10.0), run(2, final=30.0), run(3), run(4, final=20.0)]
    assert order(*runs) == ["2", "4", "1", "3"]


def test_a_failed_run_with_an_earlier_goal_gives_the_others_none() -> None:
    runs = [run(1, 0, 480.0), run(1, 1, phase="Failed", has_goal=True)]
    assert "GOAL" not in table(rows(runs))
    assert "GOAL" in table(rows(runs[1:]))


def test_with_a_goal_more_runs_that_reach_it_then_fewer_steps_are_better() -> None:
    given = [
        *((1, 480, 100, True), (1, 90, 9000, False), (2, 476, 3000, True), (2, 476, 5000, True)),
        *((3, 475, 2000, True), (3, 475, 2000, True), (4, 470, 9000, False), (4, 470, 9000, False)),
    ]
    runs = [
        run(rate, i % 2, final, steps, has_goal=True, reached=reached)
        for i, (rate, final, steps, reached) in enumerate(given)
    ]
    assert order(*runs) == ["3", "2", "1", "4"]
    second = rows(runs)[1]
    assert second.steps == Spread(4000, pytest.approx(1414.2, abs=0.1), 2)
    assert second.seconds == Spread(4.0, pytest.approx(1.414, abs=0.001), 2)
    third = rows(runs)[2]
    assert (third.reached, third.steps) == (1, Spread(100, None, 1)), "only those that have reached it count"


def test_a_failed_run_is_counted_and_is_in_no_other_figure() -> None:
    (row,) = rows([run(1, 0, 10.0), run(1, 1, 900.0, phase="Failed"), run(1, 2, 20.0)])
    assert (row.failed, row.succeeded, len(row.runs)) == (1, 2, 3)
    assert row.mean_return == Spread(15.0, pytest.approx(7.07, abs=0.01), 2)
    assert row.rate == Spread(1000.0, 0.0, 2)


def test_points_are_equal_by_value_whatever_the_order_of_the_runs() -> None:
    runs = [run(1e-3, 1, 1.0), run(1e-4, 0, 2.0), run(1e-3, 0, 3.0)]
    found = {row.label: [each.seed for each in row.runs] for row in rows(runs)}
    assert list(found.items()) == [("learningRate=0.001", [0, 1]), ("learningRate=0.0001", [0])]


def test_runs_of_no_sweep_are_named_and_join_when_they_differ_in_the_seed_alone() -> None:
    def plain(name: str, seed: int, spec: str) -> Result:
        return run(None, seed, 1.0, source=name, name=name, alike=spec)

    named = rows([plain("a", 0, "x"), plain("b", 1, "x"), plain("c", 2, "x"), plain("d", 0, "y")])
    assert sorted(row.label for row in named) == ["a, b and 1 more", "d"]


def test_the_table() -> None:
    runs = [
        run(1e-3, 0, 480.25, 100_000, has_goal=True, reached=True),
        run(1e-3, 1, 476.75, 300_000, has_goal=True, reached=True),
        run(10, 0, 9.5, 2_000_000, has_goal=True),
        run(10, 1, phase="Failed", has_goal=True),
        run(0.5, 0, phase="Pending", has_goal=True),
    ]
    assert table(rows(runs)) == (
        """\
learningRate     RUNS   FAILED     GOAL        RETURN   STEPS TO GOAL         SECONDS   STEPS/S
0.001               2        -   2 of 2   478.5 ± 2.5     200k ± 141k   200.0 ± 141.4    1k ± 0
10                  2        1   0 of 2         9.500               -               -        1k
0.5            0 of 1        -   0 of 1             -               -               -         -"""
    )


def test_csv_and_json_hold_the_same_figures() -> None:
    compared = rows([run(1, 0, 10.0), run(1, 1, 20.0), run(2, 0)])
    found = estimates(compared)
    lines = list(csv.DictReader(io.StringIO(as_csv(compared, found))))
    points = json.loads(as_json(compared, found))["points"]
    assert [line["learningRate"] for line in lines] == ["1", "2"]
    assert [line["returnMean"] for line in lines] == ["15.0", ""]
    assert [point["return"] for point in points] == [{"mean": 15.0, "std": 50**0.5, "n": 2}, None]
    assert [line["returnIqm"] for line in lines] == ["15.0", ""]
    assert [point["estimate"] and point["estimate"]["returnIqm"] for point in points] == [15.0, None]
    assert [point["values"] for point in points] == [{RATE: 1}, {RATE: 2}]
    assert [each["return"] for each in points[0]["runs"]] == [10.0, 20.0]


def test_estimates_leave_out_the_extremes_and_count_pairs() -> None:
    """The reference values are those of rliable: an interquartile mean, and a probability of improvement."""
    best = [run(1, seed, final) for seed, final in enumerate([10.0, 20.0, 30.0, 40.0, 900.0])]
    other = [run(2, seed, final) for seed, final in enumerate([-9.0, 20.0, 24.0, 25.0])]
    compared = rows([*other, *best, run(3, 0, 1.0)])

    first, second, alone = estimates(compared)

    assert first is not None
    assert second is not None
    assert (first.iqm, first.improvement) == (30.0, None), "the mean of 20, 30 and 40"
    assert 10.0 <= first.low < 30.0 < first.high <= 900.0
    assert second.iqm == 22.0
    # 10 is above one of four, 20 above one and equal to one, and each of 30, 40 and 900 above all.
    assert second.improvement == pytest.approx((1 + 1.5 + 3 * 4) / 20)
    assert alone is None


def test_differences_are_those_of_runs_with_the_same_seed() -> None:
    first = [run(1, seed, final) for seed, final in enumerate([100.0, 300.0, 500.0])]
    other = [run(2, seed, final) for seed, final in enumerate([90.0, 295.0])] + [run(2, 7, 0.0)]
    unpaired = [run(3, seed, 1.0) for seed in (0, 8)]
    repeated = [run(4, seed, final) for seed in (0, 1) for final in (0.0, 50.0)]

    best, second, fourth, third = estimates(rows([*first, *other, *unpaired, *repeated]))

    assert best is not None
    assert second is not None
    assert third is not None
    assert best.difference is None
    assert second.difference == Interval(-7.5, -10.0, -5.0, 2)
    assert third.difference is None, "one pair has no interval"
    assert fourth is not None
    assert fourth.difference is not None
    assert (fourth.difference.mean, fourth.difference.pairs) == (-175.0, 2)


def test_equal_returns_have_an_interval_of_one_point() -> None:
    (found,) = estimates(rows([run(1, seed, 5.0) for seed in range(3)]))
    assert found == Estimate(5.0, 5.0, 5.0, None)


def test_the_table_of_estimates() -> None:
    compared = rows([run(1, 0, 10.0), run(1, 1, 10.0), run(2, 0, 3.0), run(2, 1, 3.0), run(3, 0, 1.0)])
    assert estimates_table(compared, estimates(compared)) == (
        """\
learningRate   SEEDS   IQM OF RETURN     95% INTERVAL   P(FIRST IS BETTER)                           DIFFERENCE
1                  2           10.00   10.00 to 10.00                    -                                    -
2                  2           3.000   3.000 to 3.000                 1.00   -7.000 (-7.000 to -7.000), 2 pairs"""
    )
    alone = rows([run(1, 0, 10.0)])
    assert estimates_table(alone, estimates(alone)) == ""


def test_a_curve_is_interpolated_between_its_points_and_keeps_its_end() -> None:
    begin, end = 10, 10 + POINTS - 1
    found = band([curve((begin, 0.0), (20, 10.0), (40, 0.0)), curve((0, 0.0), (end, 0.0))])
    assert found is not None
    returns = dict(zip(found.steps.tolist(), found.high.tolist(), strict=True))
    assert [returns[step] for step in (10, 15, 20, 35, 40, 99)] == [0, 5, 10, 2.5, 0, 0]


def test_a_band_goes_from_where_all_have_begun_to_where_the_last_one_ends() -> None:
    found = band([curve((0, 0.0), (100, 100.0)), (), curve((20, 0.0), (60, 40.0))])
    assert found is not None
    assert (found.steps[0], found.steps[-1], len(found.steps)) == (20, 100, POINTS)
    assert (found.low[0], found.mean[0], found.high[0]) == (0, 10, 20)
    assert (found.low[-1], found.mean[-1], found.high[-1]) == (40, 70, 100), "the shorter one keeps its last"
    assert band([(), ()]) is None
    alone = band([curve((5, 1.0), (7, 2.0))])
    assert alone is not None
    assert (alone.steps.tolist(), alone.mean.tolist()) == ([5, 7], [1.0, 2.0])


def test_a_picture_is_drawn_of_what_has_points(tmp_path: Path) -> None:
    path = tmp_path / "comparison.png"
    assert not draw(rows([run(1), run(2, final=3.0, phase="Failed")]), path)
    assert not path.exists()
    assert draw(rows([run(i, seed, 3.0) for i in range(SHOWN + 1) for seed in (0, 1)]), path)
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.fixture
def swept(tmp_path: Path, file: Path) -> Path:
    """The folder of a sweep with a first run that has succeeded."""
    folder = tmp_path / "sweep"
    sweep_folder.write(folder, plan(str(file), (), Request((f"{RATE}=1e-3,1e-4",), 2)))
    first = folder / "learningRate=0.001,seed=0"
    message = "stop.meanReturn is met: the last 100 episodes returned 480 on average"
    status = Status(phase="Succeeded", message=message, progress=Progress(mean_return=480))
    job = load(str(first / "job.yaml")).job.model_copy(update={"status": status})
    (first / "status.json").write_text(json.dumps(job.to_dict()))
    lines = [{"environmentSteps": n, "seconds": n / 1e5, "meanReturn": n / 1000} for n in (0, 480_000)]
    (first / "progress.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_a_sweep_that_is_not_over_can_be_compared(swept: Path) -> None:
    assert succeeded("compare", swept, "--output", swept / "here.png") == (
        """\
learningRate     RUNS   FAILED     GOAL   RETURN   STEPS TO GOAL   SECONDS   STEPS/S
0.001          1 of 2        -   1 of 2    480.0            480k       4.8      100k
0.0001         0 of 2        -   0 of 2        -               -         -         -
"""
    )
    assert (swept / "here.png").is_file()
    names = [swept / f"learningRate={rate},seed=0" for rate in ("0.001", "0.0001")]
    assert len(json.loads(succeeded("compare", *names, "--json"))["points"]) == 2


def test_what_weakens_a_comparison_is_noted() -> None:
    assert list(notes(rows([run(1, 0, 3.0), run(2, 0, 5.0)]))) == []
    assert list(notes(rows([run(1, 0, 3.0), run(2, 0, 5.0, title="ppo on Acrobot-v1")]))) == [
        "returns of different environments cannot be compared: Acrobot-v1, CartPole-v1"
    ]
    assert list(notes(rows([run(1, seed, 3.0) for seed in range(4)]))) == [
        "fewer than 5 seeds: the intervals are too narrow, and differences may be chance (--seeds 5)"
    ]
    assert list(notes(rows([run(1, seed, 3.0) for seed in range(5)]))) == []


def test_what_cannot_be_compared(swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    (tmp_path / "empty").mkdir()
    for arguments, problem in (
        ((tmp_path / "empty",), "holds neither a run nor a sweep: name a folder that rltrain run created"),
        ((tmp_path / "nowhere",), "there is no such folder"),
        (("a" * 300,), f"{'a' * 300}: File name too long"),
        (("nowhere",), "nowhere: there is no such folder; as the name of a sweep in a cluster: "),
        ((swept, "--json", "--csv"), "--json and --csv exclude each other: leave one out"),
        ((swept, "--output", "x.bmp"), "--output x.bmp: must end with .png, .svg or .pdf"),
    ):
        assert problem in refused("compare", *arguments)
    result = rltrain("compare", swept, "--output", tmp_path / "no" / "x.png")
    assert result.exit_code == 2
    assert result.stderr.endswith("/x.png: cannot be written: No such file or directory\n")
