"""Progress of a run across restarts and changed rules."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rltraining_api.curve import CurvePoint
from rltraining_api.lifecycle import MeanReturn, SmoothedReturn, Stop
from rltraining_api.status import Progress
from rltraining_trainer.dataflow.reports import StatsDelta
from rltraining_trainer.roles.progress import ProgressTracker, progress_line
from rltraining_trainer.transport import Traffic
from soak import SOAK
from through_a_file import stored


def delta(*returns: float, steps: int = 10, lag: int = 0) -> StatsDelta:
    return StatsDelta(steps, torch.tensor(returns), len(returns), lag)


STOP = Stop(
    environment_steps=1000,
    mean_return=MeanReturn(at_least=9.0, episodes=3),
    smoothed_return=SmoothedReturn(at_least=8.0, times=2),
)


def test_it_counts_what_was_used() -> None:
    tracker = ProgressTracker(STOP, Traffic())
    tracker.add([delta(1.0, 2.0, steps=10), delta(steps=7)], now=100.0)
    tracker.add([delta(3.0, 5.0, steps=20)], now=102.0)

    report = tracker.report(updates=2, model_version=3, now=102.0)

    assert (report.environment_steps, report.episodes, report.updates, report.model_version) == (37, 4, 2, 3)
    assert report.mean_return == pytest.approx(10 / 3, abs=1e-4), "of the newest three"
    assert report.steps_per_second == pytest.approx(18.5)
    assert report.percent == pytest.approx(3.7)
    assert tracker.seconds(103.0) == 3.0, "from the first unroll on"


def test_it_measures_the_bytes_of_messages_per_second() -> None:
    traffic = Traffic()
    tracker = ProgressTracker(STOP, traffic)
    assert tracker.report(0, 1, now=100.0).received_bytes_per_second is None
    for now in (100.0, 101.0, 102.0):
        traffic.on_received(b"", [torch.zeros(10)])
        traffic.on_sent(b"12345", [])
        tracker.add([delta(steps=10)], now)

    report = tracker.report(updates=2, model_version=3, now=102.0)

    assert (report.received_bytes_per_second, report.sent_bytes_per_second) == (40.0, 5.0)
    assert tracker.report(3, 3, now=120.0).sent_bytes_per_second == 0.0
    assert tracker.report(3, 3, now=120.0, over=True).sent_bytes_per_second == 5.0, "the rate before the end"
    tracker.set_state(stored(tracker.get_state(120.0)))
    assert tracker.report(3, 3, now=120.0).sent_bytes_per_second is None, "measured again after a roll-back"


def test_the_best_return_is_of_as_many_episodes_as_the_mean_is_to_go_over() -> None:
    tracker = ProgressTracker(STOP, Traffic())
    bests = []
    for returns in ((90.0,), (3.0, 3.0), (3.0,), (6.0, 6.0), (0.0,)):
        tracker.add([delta(*returns)], now=100.0)
        bests.append(tracker.report(updates=0, model_version=1, now=100.0).best_return)

    assert bests == [None, 32.0, 32.0, 32.0, 32.0]
    again = ProgressTracker(STOP, Traffic())
    again.set_state(stored(tracker.get_state(100.0)))
    assert again.best_return == 32.0


def test_the_best_return_is_of_all_samplers_of_an_update_like_the_curve() -> None:
    tracker = ProgressTracker(STOP, Traffic())
    tracker.add([delta(90.0, 90.0, 90.0), delta(3.0, 3.0, 3.0)], now=100.0)
    report = tracker.report(updates=0, model_version=1, now=100.0)
    assert report.best_return == report.mean_return == 3.0


def test_a_run_of_which_no_episode_ends_has_a_warning() -> None:
    tracker = ProgressTracker(STOP, Traffic())
    tracker.add([delta(steps=99_999)], now=100.0)
    assert list(tracker.warnings()) == []
    tracker.add([delta(steps=1)], now=101.0)
    (warning,) = tracker.warnings()
    assert warning.reason == "NoEpisodeEnds"
    assert "set spec.environment.maxEpisodeSteps" in warning.message
    tracker.add([delta(1.0, steps=1)], now=102.0)
    assert list(tracker.warnings()) == []


def test_a_run_that_ends_before_its_first_update_has_a_warning() -> None:
    tracker = ProgressTracker(STOP, Traffic())
    assert list(tracker.warnings(untrained=True)) == []  # the run has no steps either
    tracker.add([delta(1.0, steps=2320)], now=100.0)
    (warning,) = tracker.warnings(untrained=True)
    assert warning.reason == "NothingLearned"
    assert "over after 2,320 environment steps and before the first update" in warning.message


def test_steps_from_before_the_learner_began_count_but_tell_no_speed() -> None:
    tracker = ProgressTracker(STOP, Traffic())
    tracker.add([delta(steps=500)._replace(late=True)], now=100.0)
    tracker.add([delta(steps=20), delta(steps=300)._replace(late=True)], now=102.0)

    report = tracker.report(updates=0, model_version=1, now=102.0)

    assert report.environment_steps == 820
    assert report.steps_per_second == pytest.approx(10.0)


def test_the_curve_ends_with_what_the_report_says() -> None:
    tracker = ProgressTracker(STOP, Traffic())
    tracker.add([delta(1.0, 2.0)], now=100.0)
    tracker.add([delta(6.0)], now=100.1)
    tracker.add([delta(steps=0)], now=105.0)
    assert tracker.curve.points == (
        CurvePoint(environment_steps=10, seconds=0.0, mean_return=1.5),
        CurvePoint(environment_steps=20, seconds=0.1, mean_return=3.0),
    )
    assert tracker.report(2, 2, now=106.0).mean_return == 3.0


def test_a_run_that_makes_no_steps_has_no_speed() -> None:
    tracker = ProgressTracker(STOP, Traffic())
    for second in range(11):
        tracker.add([delta(steps=10)], now=100.0 + second)
    assert tracker.report(11, 11, now=112.0).steps_per_second == 10.0
    assert tracker.report(11, 11, now=130.0).steps_per_second == 0.0
    assert tracker.report(11, 11, now=130.0, over=True).steps_per_second == 10.0, "the speed before the end"


def test_before_the_first_unroll_nothing_is_known() -> None:
    tracker = ProgressTracker(STOP, Traffic())
    report = tracker.report(0, 1, now=50.0)

    assert tracker.seconds(50.0) == 0.0
    assert (report.environment_steps, report.mean_return, report.steps_per_second, report.policy_lag) == (
        0,
        None,
        None,
        None,
    )


def test_policy_lag_is_smoothed_and_never_negative() -> None:
    tracker = ProgressTracker(STOP, Traffic())
    tracker.add([delta(lag=2)], now=0.0)
    assert tracker.report(0, 6, 0.0).policy_lag == 2.0
    tracker.add([delta(lag=-93)], now=0.0)  # parameters of a lost learner
    assert tracker.report(0, 6, 0.0).policy_lag == pytest.approx(1.9)


@settings(max_examples=40 * SOAK)
@given(
    returns=st.lists(st.lists(st.integers(-9, 20), max_size=6), min_size=2, max_size=12),
    cut=st.integers(0, 11),
)
def test_a_restart_changes_nothing_but_the_clock(returns: list[list[int]], cut: int) -> None:
    straight, before = ProgressTracker(STOP, Traffic()), ProgressTracker(STOP, Traffic())
    resumed = None
    for i, episode_returns in enumerate(returns):
        batch = [delta(*map(float, episode_returns))]
        if i == min(cut, len(returns) - 1):
            resumed = ProgressTracker(STOP, Traffic())
            resumed.set_state(stored(before.get_state(float(i))))
        straight.add(batch, float(i))
        (resumed or before).add(batch, float(i) + (1000.0 if resumed else 0.0))

    assert resumed is not None
    now = float(len(returns))
    ours, theirs = resumed.report(1, 1, now + 1000.0), straight.report(1, 1, now)
    assert (ours.environment_steps, ours.episodes, ours.mean_return) == (
        theirs.environment_steps,
        theirs.episodes,
        theirs.mean_return,
    )
    ours_curve, theirs_curve = resumed.curve.points, straight.curve.points
    assert [(p.environment_steps, p.mean_return) for p in ours_curve[-1:]] == [
        (p.environment_steps, p.mean_return) for p in theirs_curve[-1:]
    ]
    assert resumed.check(now + 1000.0).reason == straight.check(now).reason


def test_seconds_go_on_after_a_restart() -> None:
    tracker = ProgressTracker(STOP, Traffic())
    tracker.add([delta()], 100.0)
    resumed = ProgressTracker(STOP, Traffic())
    resumed.set_state(stored(tracker.get_state(107.0)))

    assert resumed.seconds(5.0) == 7.0, "waiting for samplers is no training"
    resumed.add([delta()], 5.0)
    assert resumed.seconds(6.5) == 8.5


def filled(stop: Stop, *returns: float) -> ProgressTracker:
    tracker = ProgressTracker(stop, Traffic())
    tracker.add([delta(*returns)], 0.0)
    return tracker


def resume(tracker: ProgressTracker, stop: Stop) -> ProgressTracker:
    """Starts a new run under another rule."""
    resumed = ProgressTracker(stop, Traffic())
    resumed.set_state(stored(tracker.get_state(0.0)))
    return resumed


def change(tracker: ProgressTracker, stop: Stop) -> ProgressTracker:
    """Gives the same run another rule."""
    tracker.set_stop(stop)
    return tracker


under_another_rule = pytest.mark.parametrize("come_under", [resume, change])
NEVER = Stop(environment_steps=10**9)


@under_another_rule
def test_a_longer_window_waits_for_the_episodes_that_it_lacks(come_under: Any) -> None:
    tracker = filled(Stop(mean_return=MeanReturn(at_least=9, episodes=2)), *[7.0] * 5, 8.0, 8.0)
    tracker = come_under(tracker, Stop(mean_return=MeanReturn(at_least=9, episodes=4)))

    assert tracker.report(0, 0, 0.0).mean_return == 8.0, "of those that are known, not of zeros"
    tracker.add([delta(11.0)], 0.0)
    assert tracker.check(0.0).reason is None, "three of four are known"
    tracker.add([delta(9.0)], 0.0)
    assert tracker.check(0.0).reason == (
        "stop.meanReturn is met: the last 4 episodes returned 9 on average, at least 9 was asked for"
    )
    assert tracker.report(0, 0, 0.0).episodes == 9


@under_another_rule
def test_a_shorter_window_looks_at_the_newest(come_under: Any) -> None:
    tracker = filled(Stop(mean_return=MeanReturn(at_least=9, episodes=4)), 1.0, 1.0, 9.0, 9.0)
    assert tracker.check(0.0).reason is None

    tracker = come_under(tracker, Stop(mean_return=MeanReturn(at_least=9, episodes=2)))

    assert tracker.check(0.0).reason is not None


@under_another_rule
def test_a_higher_bar_is_not_met_by_what_met_the_lower_one(come_under: Any) -> None:
    tracker = filled(Stop(smoothed_return=SmoothedReturn(at_least=5, times=3)), 6.0, 6.0, 6.0)
    assert tracker.check(0.0).reason is not None

    tracker = come_under(tracker, Stop(smoothed_return=SmoothedReturn(at_least=50, times=3)))

    assert tracker.check(0.0).reason is None


@under_another_rule
def test_fewer_times_are_met_by_a_row_that_was(come_under: Any) -> None:
    tracker = filled(Stop(smoothed_return=SmoothedReturn(at_least=5, times=9)), 6.0, 6.0, 6.0)
    tracker = come_under(tracker, Stop(smoothed_return=SmoothedReturn(at_least=5, times=3)))

    assert tracker.check(0.0).reason is not None


@under_another_rule
def test_a_rule_that_is_added_counts(come_under: Any) -> None:
    tracker = come_under(filled(NEVER, 6.0), Stop(smoothed_return=SmoothedReturn(at_least=5, times=2)))
    tracker.add([delta(6.0, 6.0)], 0.0)

    assert tracker.check(0.0).reason is not None


def test_a_running_learner_that_goes_back_counts_no_second_twice() -> None:
    tracker = ProgressTracker(STOP, Traffic())
    tracker.add([delta(steps=10)], now=100.0)
    checkpoint = tracker.get_state(110.0)
    tracker.add([delta(steps=30)], now=115.0)
    tracker.set_state(checkpoint)

    assert tracker.seconds(120.0) == 10.0, "nothing is done before the next experience"
    tracker.add([delta(steps=10)], now=121.0)
    tracker.add([delta(steps=10)], now=122.0)
    assert tracker.seconds(122.0) == 11.0
    assert tracker.report(1, 1, now=122.0).steps_per_second == 20.0


def test_a_line_of_progress_names_what_is_known() -> None:
    known = {"steps_per_second": 251003.4, "mean_return": 213.44, "policy_lag": 2.0, "percent": 41.2}
    assert progress_line(Progress()) == "no steps have arrived from samplers yet"
    assert progress_line(Progress(environment_steps=5120)) == "5,120 steps, 0 updates"
    assert (
        progress_line(Progress(environment_steps=412160, updates=201, **known))
        == "412,160 steps, 251,003 steps/s, return 213.4, lag 2, 201 updates, 41%"
    )
