"""Selects the diagrams of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rltraining_api.curve import thinned

from rltraining.history import EVALUATED_STEP, Row, number
from rltraining.report.svg import Line, draw

POINTS_MAX = 500
"""Maximum points of a diagram, which is its width in pixels."""
SECONDS, STEPS = "seconds", "environmentSteps"
UNITS = ((7200.0, 3600.0, "hours of training"), (300.0, 60.0, "minutes of training"))
"""The minimum seconds for which a unit is used, its length in seconds, and its label."""


@dataclass(frozen=True)
class FigureSpec:
    """A diagram of measurements, by their names in progress.jsonl."""

    title: str
    names: tuple[str, ...]
    over: str = SECONDS
    has_goal: bool = False


@dataclass(frozen=True)
class Figure:
    """A drawn diagram."""

    title: str
    svg: str


@dataclass(frozen=True)
class Section:
    """Diagrams with a common title."""

    title: str
    figures: tuple[Figure, ...]


EVALUATION = "Evaluation"
"""The section about points that report an evaluation. All others are about all points."""
SECTIONS: dict[str, tuple[FigureSpec, ...]] = {
    "Return": (
        FigureSpec("Mean return over steps", ("meanReturn",), STEPS, has_goal=True),
        FigureSpec("Mean return over time", ("meanReturn",), has_goal=True),
    ),
    EVALUATION: (
        FigureSpec(
            "Return of evaluations: mean, lowest and highest",
            ("evaluation/return", "evaluation/min", "evaluation/max"),
            EVALUATED_STEP,
            has_goal=True,
        ),
        FigureSpec("Mean length of evaluation episodes, in steps", ("evaluation/length",), EVALUATED_STEP),
    ),
    "Speed and lag": (
        FigureSpec("Environment steps a second", ("stepsPerSecond",)),
        FigureSpec("Policy lag, in versions", ("policyLag",)),
        FigureSpec("Longest wait of the learner, in seconds", ("learner/longestWait",)),
        FigureSpec("Learning rate", ("learningRate",)),
    ),
    "Dataflow": (
        FigureSpec("Unrolls so far", ("unrolls/pushed", "unrolls/used", "unrolls/dropped")),
        FigureSpec("Unrolls in the queue", ("unrolls/queued",)),
        FigureSpec("Gradients so far", ("gradients/pushed", "gradients/applied", "gradients/dropped")),
        FigureSpec("Gradients in the queue", ("gradients/queued",)),
    ),
    "Replay memory": (
        FigureSpec("Transitions in the memory", ("replay/size",)),
        FigureSpec(
            "Transitions so far", ("replay/inserted", "replay/sampled", "replay/evicted", "replay/lost")
        ),
        FigureSpec("Draws of each transition", ("replay/ratio",)),
        FigureSpec("Age of drawn transitions, in transitions", ("replay/sampleAge",)),
        FigureSpec("New priorities so far", ("replay/prioritiesApplied", "replay/prioritiesStale")),
    ),
}
LOSS = "loss/"


def sections(
    rows: Sequence[Row],
    goal: float | None,
    evaluations: Sequence[Row] = (),
    evaluation_goal: float | None = None,
) -> tuple[Section, ...]:
    """Returns the diagrams of all measurements that have values.

    Args:
        rows: Points of training.
        goal: Mean return of `stop.meanReturn`.
        evaluations: Points that report an evaluation.
        evaluation_goal: Mean return of `stop.evaluation`.
    """
    made = []
    for title, specs in (SECTIONS | {"Loss": tuple(_loss(rows))}).items():
        points, limit = (evaluations, evaluation_goal) if title == EVALUATION else (rows, goal)
        shown, name = thinned(points, POINTS_MAX), title.split()[0].lower()
        drawn = (_figure(f"{name}-{i}", spec, shown, limit) for i, spec in enumerate(specs))
        if figures := tuple(filter(None, drawn)):
            made.append(Section(title, figures))
    return tuple(made)


def _loss(rows: Iterable[Row]) -> Iterator[FigureSpec]:
    """Returns a diagram for each term of the loss, since the terms have no common scale."""
    names = dict.fromkeys(name for row in rows for name in row if name.startswith(LOSS))
    return (FigureSpec(name.removeprefix(LOSS).replace("_", " "), (name,)) for name in names)


def _figure(name: str, spec: FigureSpec, rows: Sequence[Row], goal: float | None) -> Figure | None:
    scale, label = _unit(rows) if spec.over == SECONDS else (1.0, "environment steps")
    x = [row[spec.over] / scale for row in rows]
    lines = [
        Line(measured.rpartition("/")[2], x, [number(row, measured) for row in rows])
        for measured in spec.names
    ]
    lines = [line for line in lines if line.values]
    if not lines:
        return None
    svg = draw(
        name,
        spec.title,
        lines,
        x_label=label,
        goal=goal if spec.has_goal else None,
        marks=[
            after[spec.over] / scale
            for before, after in pairwise(rows)
            if before.get("run") != after.get("run")
        ],
    )
    return Figure(spec.title, svg)


def _unit(rows: Sequence[Row]) -> tuple[float, str]:
    """Returns the length of the time unit in seconds, and its label."""
    longest = rows[-1][SECONDS] if rows else 0.0
    for limit, scale, label in UNITS:
        if longest >= limit:
            return scale, label
    return 1.0, "seconds of training"
