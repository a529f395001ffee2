"""Implements `rltrain suspend`, `resume`, `scale` and `delete`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rltraining_api.job import RLTrainingJob

from rltraining import workdir
from rltraining.cluster import sweep
from rltraining.cluster.output import NOT_KEPT, keeps_its_output
from rltraining.errors import ClientError, UsageError
from rltraining.jobfile import load
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
    """Sets the number of samplers of a job, or of the run in a folder, which turns `sampler.autoscale` off. Raises
    UsageError if that number is set already, so that it would not."""
    if "/" in name:  # is not in the name of a job
        return scale_here(Path(name), samplers)
    try:
        client = connect()
        job = client.get(name)
    except ClientError:
        if not workdir.holds_run(Path(name)):
            raise
        return scale_here(Path(name), samplers)
    scales = _check_autoscale(job, name, samplers)
    client.scale(name, samplers)
    _tell(client.get(name), _scaled(samplers, scales))


def scale_here(folder: Path, samplers: int) -> None:
    """Sets the number of samplers of a run on this machine in its job.yaml, which the run follows.
    Raises UsageError."""
    if not workdir.holds_run(folder):
        raise UsageError(f"{folder}: is no folder of a run: name one, or a job in a cluster")
    if not workdir.is_held(folder):
        raise UsageError(
            f"{folder}: this run has ended: continue it with: "
            f"rltrain run {folder} --resume --set sampler.replicas={samplers}"
        )
    path = folder / workdir.JOB_FILE
    file = load(str(path), [f"sampler.replicas={samplers}"])
    job = workdir.last_state(folder)
    scales = job is not None and _check_autoscale(job, str(folder), samplers)
    with workdir.written(folder):
        file.save(path)
    say(f"{folder}: {_scaled(samplers, scales)}")


def _check_autoscale(job: RLTrainingJob, name: str, samplers: int) -> bool:
    """Returns whether the operator sets the number of samplers until now. Raises UsageError if it would continue."""
    found = job.status.autoscale
    scales = job.spec.sampler.autoscale is not None and (found is None or found.state == "Active")
    if scales and job.spec.sampler.replicas == samplers:
        raise UsageError(
            f"{name}: spec.sampler.replicas is {samplers} already, so sampler.autoscale stays on: set "
            "another number first, or remove sampler.autoscale"
        )
    return scales


def _scaled(samplers: int, scales: bool) -> str:
    off = "; sampler.autoscale is off until it is changed" if scales else ""
    return f"scaled to {plural(samplers, 'sampler')}{off}"


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
