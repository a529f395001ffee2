"""Implements `rltrain suspend`, `resume`, `scale` and `delete`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rltraining_api.job import RLTrainingJob

from rltraining import workdir
from rltraining.cluster import sweep
from rltraining.cluster.output import NOT_KEPT, keeps_its_output
from rltraining.errors import ClientError, UsageError
from rltraining.printable import say
from rltraining.sdk.client import RLTrainingClient
from rltraining.units import plural


def suspend(client: RLTrainingClient, name: str) -> None:
    """Sets `runPolicy.suspend`."""
    job = client.suspend(name)
    how = "continue it" if keeps_its_output(job) else f"{NOT_KEPT}: start it again"
    _tell(job, f"suspended: {how} with: rltrain resume {name}")


def resume(client: RLTrainingClient, name: str) -> None:
    """Clears `runPolicy.suspend`."""
    _tell(client.resume(name), f"resumed: see it with: rltrain watch {name}")


def scale(connect: Callable[[], RLTrainingClient], name: str, samplers: int) -> None:
    """Sets the number of samplers, which turns `sampler.autoscale` off. Raises UsageError if that number is set
    already, so that it would not, and for the folder of a run on this machine."""
    try:
        client = connect()
        job = client.get(name)
    except ClientError as error:
        if not workdir.holds_run(Path(name)):
            raise
        raise UsageError(
            f"{name}: is the folder of a run on this machine, whose number of samplers changes only when it is resumed: end it "
            f"with Ctrl-C, and continue with: rltrain run {name} --resume --set sampler.replicas={samplers}"
        ) from error
    found = job.status.autoscale
    scales = job.spec.sampler.autoscale is not None and (found is None or found.state == "Active")
    if scales and job.spec.sampler.replicas == samplers:
        raise UsageError(
            f"{name}: spec.sampler.replicas is {samplers} already, so sampler.autoscale stays on: set "
            "another number first, or remove sampler.autoscale"
        )
    client.scale(name, samplers)
    off = "; sampler.autoscale is off until it is changed" if scales else ""
    _tell(client.get(name), f"scaled to {plural(samplers, 'sampler')}{off}")


def delete(client: RLTrainingClient, name: str | None, of_sweep: str | None, *, wait: bool) -> None:
    """Deletes one job, or all jobs of a sweep."""
    if (name is None) == (of_sweep is None):
        raise UsageError("name one job, or a sweep with --sweep")
    if name is None:
        return sweep.delete(client, of_sweep or "", wait=wait)
    client.delete(name, wait=wait)
    say(f"{name}: deleted")


def _tell(job: RLTrainingJob, change: str) -> None:
    name = job.metadata.name
    if job.status.completion_time is not None:
        say(f"{name}: is over already ({job.status.phase}): this changes nothing")
    else:
        say(f"{name}: {change}")
