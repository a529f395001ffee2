"""Implements `rltrain logs`: the log of one pod, or of several pods with prefixes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TextIO

from rltraining_api.job import RLTrainingJob
from rltraining_api.names import Role

from rltraining.cluster.merge import Merge
from rltraining.errors import UsageError
from rltraining.printable import with_colours
from rltraining.sdk.client import RLTrainingClient
from rltraining.sdk.errors import JobNotFoundError

ALL = "all"
FOLLOWED_MAX = 64
"""Maximum number of followed pods. Each needs a connection to the API server, which connects to a
kubelet."""


@dataclass(frozen=True)
class LogsOptions:
    """The options of the command line."""

    name: str
    role: Role
    index: str
    """A number, or `all`."""
    follow: bool = False
    previous: bool = False
    tail: int | None = None


def logs(client: RLTrainingClient, options: LogsOptions, out: TextIO | None = None) -> None:
    """Prints logs. On a terminal, control characters except colours are escaped. Raises UsageError,
    ClusterError."""
    out = out or sys.stdout
    if options.follow and options.previous:
        raise UsageError("--follow and --previous exclude each other: leave one out")
    if options.index == ALL:
        lines = _followed(client, options) if options.follow else _one_by_one(client, options)
    elif options.index.isdecimal():
        lines = _lines(client, options, int(options.index))
    else:
        raise UsageError(f"--index: must be a number or all, got {options.index}")
    shown = with_colours if out.isatty() else str
    for line in lines:
        print(shown(line), file=out, flush=options.follow)


def _lines(client: RLTrainingClient, options: LogsOptions, index: int) -> Iterator[str]:
    return client.logs(
        options.name,
        options.role,
        index,
        follow=options.follow,
        previous=options.previous,
        tail=options.tail,
    )


def _prefixed(client: RLTrainingClient, options: LogsOptions, index: int) -> Iterator[str]:
    for line in _lines(client, options, index):
        yield f"[{options.role}-{index}] {line}"


def _count(job: RLTrainingJob, role: Role) -> int:
    """Returns the wanted number of members of a role. Raises UsageError if the job has no such
    role."""
    if count := job.replicas(role):
        return count
    raise UsageError(f"--role: job {job.metadata.name} has no {role} pods")


def _one_by_one(client: RLTrainingClient, options: LogsOptions) -> Iterator[str]:
    """Yields the lines of one pod after the other. Skips pods without a log. Raises
    JobNotFoundError if no pod has one."""
    missing: list[str] = []
    count = _count(client.get(options.name), options.role)
    for index in range(count):
        try:
            yield from _prefixed(client, options, index)
        except JobNotFoundError as error:
            missing += error.problems
    if len(missing) == count:
        raise JobNotFoundError(*missing[:1])


def _followed(client: RLTrainingClient, options: LogsOptions) -> Iterator[str]:
    """Yields the lines of all pods as they arrive, including members that are added later, also
    after they were removed."""
    merge = Merge()
    followed: set[int] = set()
    ended: set[int] = set()
    away: set[int] = set()

    def lines(index: int) -> Iterator[str]:
        yield from _prefixed(client, options, index)
        ended.add(index)

    def follow(job: RLTrainingJob) -> None:
        count = _count(job, options.role)
        if count > FOLLOWED_MAX:
            raise UsageError(
                f"--index all: {count} pods are too many to follow (at most {FOLLOWED_MAX}): choose some with --index"
            )
        away.update(followed.difference(range(count)))
        again = away & ended & set(range(count))
        for some in (followed, ended, away):
            some -= again
        for index in sorted(set(range(count)) - followed):
            followed.add(index)
            merge.add(partial(lines, index))

    def watch_job() -> Iterator[str]:
        """Adds members, and yields no lines."""
        for change in client.watch(options.name):
            if change.type == "DELETED" or change.job.status.completion_time is not None:
                return
            follow(change.job)
            yield from ()

    follow(client.get(options.name))
    merge.add(watch_job)
    return iter(merge)
