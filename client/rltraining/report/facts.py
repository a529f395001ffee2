"""Formats the figures of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from rltraining_api.names import ROLES
from rltraining_api.status import Status

from rltraining.history import Row, number
from rltraining.report.sources import Source
from rltraining.units import clock, count, plural, score, short

COUNTERS = (
    ("Unrolls", "unrolls", "pushed", ("used", "dropped", "queued")),
    ("Gradients", "gradients", "pushed", ("applied", "dropped", "queued")),
    ("Transitions", "replay", "inserted", ("evicted", "size", "lost")),
)
"""For each balance: its name, its prefix in progress.jsonl, the total, and the parts of the
total."""


@dataclass(frozen=True)
class Fact:
    """A name and its value. `note` contains details in small print."""

    name: str
    value: str
    note: str = ""


def headline(source: Source, now: datetime) -> list[Fact]:
    """Returns the most important figures."""
    job, status = source.job, source.job.status
    returns = [value for row in source.rows if (value := number(row, "meanReturn")) is not None]
    last = returns[-1] if returns else status.progress.mean_return
    best = status.progress.best_return
    of_best = "" if best is None else f"best {score(best)}; "
    final = Fact("Return", score(last), f"{of_best}of training episodes" if returns else "")
    seconds = source.rows[-1]["seconds"] if source.rows else None
    replicas = {role: job.replicas(role) for role in ROLES}
    members = ", ".join(
        plural(number, "replay pod" if role == "replay" else role)
        for role, number in replicas.items()
        if number
    )
    return [
        Fact("Algorithm", job.spec.algorithm.title, members),
        Fact("Environment", job.spec.environment.id, f"seed {job.spec.seed}"),
        final,
        *_evaluation(status),
        Fact("Training", _duration(seconds), _wall_clock(status, now)),
        Fact("Steps", count(_steps(source)), plural(status.progress.episodes, "episode")),
        Fact(
            "Restarts",
            count(status.restarts),
            f"{plural(status.failures, 'failure')}, {plural(status.disruptions, 'disruption')}",
        ),
    ]


def throughput(source: Source) -> list[Fact]:
    """Returns the figures about speed."""
    rows, progress = source.rows, source.job.status.progress
    return [*_speed(source), *_updates(rows, progress.updates), *_lag(rows), *_learner(rows)]


def counters(source: Source) -> list[Fact]:
    """Returns for each total whether its parts (used, dropped, in transit) sum up to it, at the
    newest point."""
    newest = dict(source.rows[-1]) if source.rows else {}
    if (replay := source.job.status.replay) is not None:
        from_status = {f"replay/{name}": value for name, value in replay.to_dict().items()}
        newest = from_status | newest
    facts = []
    for name, kind, total, parts in COUNTERS:
        values = {part: number(newest, f"{kind}/{part}") for part in (total, *parts)}
        if None not in values.values():
            whole, *rest = (int(value or 0) for value in values.values())
            sum_ = " + ".join(f"{value:,} {part}" for part, value in zip(parts, rest, strict=True))
            wrong = "" if whole == sum(rest) else f"does not add up: {sum(rest):,} are accounted for"
            facts.append(Fact(name, f"{whole:,} {total} = {sum_}", wrong))
    return facts


def _evaluation(status: Status) -> Iterator[Fact]:
    """Yields the last and the best evaluation of a job with `spec.evaluation`."""
    if status.evaluation is None or (last := status.evaluation.last) is None:
        return
    best = status.evaluation.best
    note = f"best {score(best.mean_return)}, at step {count(best.environment_steps)}; " if best else ""
    yield Fact("Evaluation", score(last.mean_return), f"{note}mean of {plural(last.episodes, 'episode')}")


def _duration(seconds: float | None) -> str:
    """Formats seconds as a clock, with tenths below a minute."""
    if seconds is None:
        return "-"
    return f"{seconds:.1f} s" if seconds < 60 else clock(seconds)


def _wall_clock(status: Status, now: datetime) -> str:
    """Formats the time from the (last) start to the end."""
    if status.start_time is None:
        return ""
    seconds = max(0.0, ((status.completion_time or now) - status.start_time).total_seconds())
    return f"started {status.start_time:%Y-%m-%d %H:%M} UTC" + (
        f", over after {clock(seconds)}" if status.completion_time else ""
    )


def _steps(source: Source) -> int:
    """Returns the steps so far. The status of a killed run may be older than its last point."""
    newest = source.rows[-1]["environmentSteps"] if source.rows else 0
    return max(int(newest), source.job.status.progress.environment_steps)


def _speed(source: Source) -> Iterator[Fact]:
    rows = source.rows
    if not rows:
        return
    seconds, steps = rows[-1]["seconds"] - rows[0]["seconds"], rows[-1]["environmentSteps"]
    rates = _values(rows, "stepsPerSecond")
    if seconds > 0:
        mean = (steps - rows[0]["environmentSteps"]) / seconds
        note = f"last {short(rates[-1])}, highest {short(max(rates))}" if rates else ""
        yield Fact("Environment steps a second", short(mean), note)


def _updates(rows: Sequence[Row], updates: int) -> Iterator[Fact]:
    seconds = rows[-1]["seconds"] if rows else 0
    yield Fact("Updates", count(updates), f"{short(updates / seconds)} a second" if seconds > 0 else "")


def _lag(rows: Sequence[Row]) -> Iterator[Fact]:
    if lags := _values(rows, "policyLag"):
        mean = sum(lags) / len(lags)
        yield Fact(
            "Policy lag, in versions", short(mean), f"last {short(lags[-1])}, highest {short(max(lags))}"
        )


def _learner(rows: Sequence[Row]) -> Iterator[Fact]:
    if waits := _values(rows, "learner/longestWait"):
        note = f"median of points {short(sorted(waits)[len(waits) // 2])} s"
        yield Fact("Longest wait of the learner for data", f"{short(max(waits))} s", note)
    if sent := _values(rows, "parameters/bytesSent"):
        yield Fact("Parameters sent to samplers", f"{sent[-1] / 1e6:,.1f} MB")


def _values(rows: Sequence[Row], name: str) -> list[float]:
    return [value for row in rows if (value := number(row, name)) is not None]
