"""Implements `rltrain report`."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from rltraining import workdir
from rltraining.errors import ClientError, UsageError
from rltraining.printable import say
from rltraining.report import page, sources
from rltraining.report.page import Video
from rltraining.report.sources import Source
from rltraining.sdk.client import RLTrainingClient
from rltraining.units import short
from rltraining.whole_file import check_stays_in, write_whole

VIDEO_SECONDS = 60.0
"""Maximum seconds of the recorded episode, which may be endless."""


def report(
    target: str, output: Path | None, client: Callable[[], RLTrainingClient], *, with_video: bool
) -> None:
    """Writes the page. `client` is called only if the target, a run's folder or the name of a job, is a
    job. Raises ClientError."""
    source, path = _source(target, client)
    path = output or path
    if path.is_dir():
        raise UsageError(f"--output {path}: is a folder: name a file in it")
    if output is None:
        check_stays_in(path.parent, path)
    video = _film(source) if with_video else Video(why_not="It was left out: --no-video.")
    text = page.render(source, video, datetime.now(UTC))
    try:
        write_whole(path, text)
    except OSError as error:
        raise ClientError(f"{path}: cannot be written: {error.strerror}") from None
    say(f"{path}: {short(len(text))}B")


def _source(target: str, client: Callable[[], RLTrainingClient]) -> tuple[Source, Path]:
    """Returns the source of the report and the default output path. A folder without a run may have
    the name of a job."""
    folder, is_path = Path(target), os.sep in target or target in (os.curdir, os.pardir)
    is_folder = folder.is_dir()
    if is_folder and (is_path or workdir.holds_run(folder) or workdir.holds_sweep(folder)):
        workdir.check_is_text(folder, "")
        return sources.of_folder(folder), folder / workdir.REPORT_FILE
    if is_path or folder.is_file():
        raise UsageError(f"{target}: is no folder: name the folder of a run, or a job in a cluster")
    try:
        return sources.of_job(client(), target), Path(f"{target}-report.html")
    except ClientError as error:
        if not is_folder:
            raise
        raise UsageError(f"{target}: holds no run; as the name of a job in a cluster: {error}") from None


def _film(source: Source) -> Video:
    """Records an episode of the policy, or the reason why this is impossible, which the page shows.
    Never runs user code, since the run may be from another user."""
    if source.policy is None:
        return Video(why_not=source.no_policy)
    from rltraining_trainer.errors import TrainerError

    from rltraining.policies import UntrustedPolicyError, explained, open_policy
    from rltraining.video import record

    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "episode.mp4"
            record(open_policy(source.policy, trust_code=False), path, longest=VIDEO_SECONDS)
            mp4 = path.read_bytes()
    except UntrustedPolicyError as error:
        film_it = f"rltrain evaluate {shlex.quote(source.policy)} --trust-code --video FILE.mp4"
        left_out = f"the policy is not filmed: {error.needs}, and a report runs no user code; {film_it} does"
        say(f"note: {left_out}", err=True)
        return Video(why_not=_sentence(left_out[0].upper() + left_out[1:]))
    except TrainerError as error:
        return Video(why_not=_sentence(explained(error)))
    except ClientError as error:
        return Video(why_not=_sentence(str(error)))
    except OSError as error:
        return Video(why_not=f"It could not be written: {error.strerror or error}.")
    seconds = f"{VIDEO_SECONDS:g} seconds"
    return Video(mp4, note=f"One episode with the most likely actions, at most its first {seconds}.")


def _sentence(problem: str) -> str:
    """Adds a full stop, unless a traceback follows."""
    return problem if "\n" in problem else f"{problem}."
