"""Implements `rltrain evaluate`."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from threading import Timer

from rltraining_trainer.errors import TrainerError
from rltraining_trainer.policy import Episode, Evaluation, Policy
from rltraining_trainer.policy import evaluate as play

from rltraining.errors import ClientError, UsageError
from rltraining.policies import explained, open_policy
from rltraining.printable import say
from rltraining.units import count
from rltraining.video import VIDEO_SUFFIXES, record

SILENT_SECONDS = 30.0
ENDLESS = (
    f"no episode has ended after {SILENT_SECONDS:g} s; if they never end, press Ctrl-C, and train with "
    "spec.environment.maxEpisodeSteps"
)


@dataclass(frozen=True)
class EvaluateOptions:
    """The options of the command line."""

    policy: str
    episodes: int
    seed: int
    envs: int
    stochastic: bool
    as_json: bool
    video: Path | None
    trust_code: bool


def evaluate(options: EvaluateOptions) -> None:
    """Plays episodes and prints the results. Raises ClientError."""
    if options.video is not None and options.video.suffix not in VIDEO_SUFFIXES:
        suffixes = " and ".join(VIDEO_SUFFIXES)
        raise UsageError(f"--video {options.video}: only {suffixes} files are written")
    policy = open_policy(options.policy, trust_code=options.trust_code)
    if options.video is not None:  # first, so that a failure is reported before the episodes
        _record(policy, options, options.video)
    try:
        result = _play(policy, options)
    except TrainerError as error:
        raise ClientError(explained(error)) from None
    say(json.dumps(_document(policy, options, result)) if options.as_json else _text(policy, options, result))


def _play(policy: Policy, options: EvaluateOptions) -> Evaluation:
    """Plays episodes, with a progress bar on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    # Warn if no episode ends.
    waiting = Timer(SILENT_SECONDS, say, (ENDLESS,), {"err": True})
    waiting.daemon = True
    waiting.start()

    def ended(_: Episode) -> None:
        waiting.cancel()
        bar.advance(task)

    columns = (TextColumn("playing"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    silent = not sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=silent) as bar:
        task = bar.add_task("", total=options.episodes)
        try:
            return play(
                policy,
                options.episodes,
                seed=options.seed,
                deterministic=not options.stochastic,
                num_envs=options.envs,
                on_episode=ended,
            )
        finally:
            waiting.cancel()


def _record(policy: Policy, options: EvaluateOptions, path: Path) -> None:
    try:
        record(policy, path, seed=options.seed, deterministic=not options.stochastic)
    except TrainerError as error:
        raise ClientError(f"--video: {explained(error)}") from None
    except OSError as error:
        raise ClientError(f"--video {path}: cannot be written: {error.strerror or error}") from None


def _document(policy: Policy, options: EvaluateOptions, result: Evaluation) -> dict[str, object]:
    return {
        "policy": options.policy,
        "environment": policy.description.environment.id,
        "episodes": len(result.episodes),
        "seed": options.seed,
        "deterministic": not options.stochastic,
        "mean": result.mean,
        "std": result.standard_deviation,
        "min": float(result.returns.min()),
        "max": float(result.returns.max()),
        "steps": sum(episode.length for episode in result.episodes),
        "discarded": result.discarded,
        "returns": result.returns.tolist(),
        "video": None if options.video is None else str(options.video),
    }


def _text(policy: Policy, options: EvaluateOptions, result: Evaluation) -> str:
    actions = "drawn as in training" if options.stochastic else "most likely"
    steps = sum(episode.length for episode in result.episodes)
    lines = [
        f"{policy.description.environment.id}: {count(len(result.episodes))} episodes, actions: {actions}",
        f"  mean    {result.mean:.2f}",
        f"  std     {result.standard_deviation:.2f}",
        f"  min     {result.returns.min():.2f}",
        f"  max     {result.returns.max():.2f}",
        f"  steps   {count(steps)}",
    ]
    if result.discarded:
        failed = count(result.discarded)
        lines.append(f"  resets  {failed}, because the environment failed; these episodes are discarded")
    if options.video is not None:
        lines.append(f"  video   {options.video}")
    return "\n".join(lines)
