"""Renders a run for the terminal. Pure: converts a snapshot to a rich renderable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rltraining.plain import event_text
from rltraining.printable import one_line
from rltraining.snapshot import EventRow, PodRow, Snapshot
from rltraining.units import clock, count, decimal, score, short

PODS_SHOWN = 10
EVENTS_SHOWN = 4
BAR_WIDTH = 40

PHASE_STYLES = {
    "Running": "bold green",
    "Succeeded": "bold green",
    "Failed": "bold red",
    "Restarting": "bold yellow",
    "Suspended": "bold yellow",
    "Stopping": "bold yellow",
    "Stopped": "bold yellow",
}


def render(snapshot: Snapshot, *, curve: str = "") -> Group:
    """Renders the whole view. `curve` is the learning curve as text (see `curve.terminal`)."""
    parts: list[RenderableType] = [
        _header(snapshot),
        _progress(snapshot),
        _figures(snapshot),
        *_evaluation(snapshot),
        *_replay(snapshot),
        "",
        _pods(snapshot.pods),
    ]
    if curve:
        parts += ["", Text(curve, style="cyan")]
    if snapshot.events:
        parts += ["", *map(_event, snapshot.events[-EVENTS_SHOWN:])]
    if snapshot.notice:
        parts += ["", Text(one_line(snapshot.notice), style="bold yellow")]
    return Group(*parts)


def _header(snapshot: Snapshot) -> Text:
    phase = snapshot.phase
    text = Text(snapshot.title, style="bold", no_wrap=True, overflow="ellipsis")
    text.append(f"  {phase}", style=PHASE_STYLES.get(phase, "")).append(f"  {clock(snapshot.elapsed)}")
    if phase != "Running" and snapshot.message:
        text.append(f"  {one_line(snapshot.message)}", style="not bold dim")
    return text


def _progress(snapshot: Snapshot) -> RenderableType:
    percent = snapshot.status.progress.percent
    if percent is None:
        return Text("progress  -", style="dim")
    row = Table.grid(padding=(0, 1))
    known = snapshot.eta_seconds and snapshot.phase == "Running"
    eta = f"about {clock(snapshot.eta_seconds or 0)} left" if known else ""
    row.add_row(
        ProgressBar(total=100, completed=percent, width=BAR_WIDTH), f"{percent:.0f}%", Text(eta, style="dim")
    )
    return row


def _figures(snapshot: Snapshot) -> Text:
    progress = snapshot.status.progress
    rate = "-" if progress.steps_per_second is None else f"{short(progress.steps_per_second)}/s"
    figures = {
        "steps": count(progress.environment_steps),
        "speed": rate,
        "return": score(progress.mean_return),
        "episodes": count(progress.episodes),
        "updates": count(progress.updates),
        "lag": decimal(progress.policy_lag),
        "version": count(progress.model_version),
    }
    return _row(figures)


def _evaluation(snapshot: Snapshot) -> list[Text]:
    """Returns a row with the last and the best evaluation of a job with `spec.evaluation`."""
    found = snapshot.status.evaluation
    if found is None or found.last is None:
        return []
    figures = {
        "evaluation": score(found.last.mean_return),
        "at": count(found.last.environment_steps),
        "std": score(found.last.std_return, found.last.mean_return),
        "length": decimal(found.last.mean_length),
    }
    if found.best is not None:
        figures |= {"best": score(found.best.mean_return), "best at": count(found.best.environment_steps)}
    return [_row(figures)]


def _replay(snapshot: Snapshot) -> list[Text]:
    """Returns a row about the replay memory, if the job has one."""
    if (replay := snapshot.status.replay) is None:
        return []
    ratio, age = replay.replay_ratio, replay.sample_age
    figures = {
        "replay": count(replay.size),
        "shards": count(replay.shards),
        "ratio": "-" if ratio is None else short(ratio),
        "age": "-" if age is None else short(age),
        "priorities": count(replay.priorities_applied),
        "stale": count(replay.priorities_stale),
        "lost": count(replay.lost),
    }
    return [_row(figures)]


def _row(figures: Mapping[str, str]) -> Text:
    text = Text()
    for name, value in figures.items():
        text.append(f"{name} ", style="dim").append(f"{value}   ")
    return text


def _pods(pods: Sequence[PodRow]) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    for column in ("POD", "PHASE", "READY", "RESTARTS", "WHY"):
        table.add_column(column, justify="right" if column == "RESTARTS" else "left", no_wrap=column != "WHY")
    shown = _worth_showing(pods)
    for pod in shown:
        ready = Text("yes", style="green") if pod.ready else Text("no", style="yellow")
        if pod.phase == "Succeeded":
            ready = Text("-", style="dim")
        table.add_row(
            Text(pod.name), Text(one_line(pod.phase)), ready, str(pod.restarts), Text(one_line(pod.why))
        )
    if len(shown) < len(pods):
        rest = [pod for pod in pods if pod not in shown]
        table.add_row(
            f"and {len(rest)} more", "", f"{sum(pod.ready for pod in rest)} are", "", "", style="dim"
        )
    return table


def _worth_showing(pods: Sequence[PodRow]) -> list[PodRow]:
    """Returns all pods, or PODS_SHOWN of them in their order, preferring unready and restarted
    pods."""
    if len(pods) <= PODS_SHOWN:
        return list(pods)
    shown = sorted(pods, key=lambda pod: (pod.ready, -pod.restarts))[:PODS_SHOWN]
    return [pod for pod in pods if pod in shown]


def _event(event: EventRow) -> Text:
    style = "yellow" if event.type == "Warning" else "dim"
    return Text(
        f"{clock(event.seconds)}  {one_line(event_text(event))}",
        style=style,
        overflow="ellipsis",
        no_wrap=True,
    )
