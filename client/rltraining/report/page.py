"""Renders the page from its template."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from rltraining.printable import printable
from rltraining.report import disturbances, facts
from rltraining.report.configuration import lines
from rltraining.report.figures import POINTS_MAX, sections
from rltraining.report.sources import Source
from rltraining.summary import failure
from rltraining.units import plural

EVENTS_MAX = 200
"""Maximum number of events that are shown. The newest are kept."""
PHASE_KINDS = {"Succeeded": "good", "Running": "good", "Failed": "bad", "Interrupted": "bad"}


@dataclass(frozen=True)
class Video:
    """An episode as MP4, or the reason why there is none."""

    mp4: bytes = b""
    why_not: str = ""
    note: str = ""


def render(source: Source, video: Video, now: datetime) -> str:
    """Returns an HTML document that loads nothing else. All text of the run is escaped, also in the
    diagrams."""
    job, status = source.job, source.job.status
    goal, evaluation_goal = job.spec.stop.mean_return, job.spec.stop.evaluation
    first, _, trace = failure(status).rstrip().partition("\n") if status.phase == "Failed" else ("", "", "")
    return printable(
        _environment()
        .get_template("page.html")
        .render(
            job=job,
            status=status,
            source=source,
            phase_kind=PHASE_KINDS.get(source.phase, "other"),
            is_over=status.completion_time is not None,
            now=now,
            headline=facts.headline(source, now),
            failure=first,
            trace=trace,
            has_restarts=len({row.get("run") for row in source.rows}) > 1,
            sections=sections(
                source.rows,
                goal.at_least if goal else None,
                source.evaluations,
                evaluation_goal.at_least if evaluation_goal else None,
            ),
            points_max=POINTS_MAX,
            disturbances=source.folder and disturbances.read(source.folder, source.rows),
            throughput=facts.throughput(source),
            counters=facts.counters(source),
            events=source.events[-EVENTS_MAX:],
            left_out=max(0, len(source.events) - EVENTS_MAX),
            yaml=lines(job),
            video=video,
            video_data=base64.b64encode(video.mp4).decode(),
        )
    )


@cache
def _environment() -> Environment:
    """Returns the template environment, which caches compiled templates."""
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        loader=FileSystemLoader(Path(__file__).parent),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["plural"] = plural
    return environment
