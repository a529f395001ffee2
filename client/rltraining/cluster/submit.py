"""Implements `rltrain submit`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rltraining_api.job import RLTrainingJob
from rltraining_api.names import GROUP, SINGULAR

from rltraining.cluster import logs, sweep
from rltraining.cluster.watch import watch
from rltraining.commands import INTERRUPTED, complain
from rltraining.errors import Exit, UsageError
from rltraining.printable import say
from rltraining.sdk.client import RLTrainingClient
from rltraining.sdk.errors import JobFailedError
from rltraining.sweep.plan import Request, plan


@dataclass(frozen=True)
class SubmitOptions:
    """The options of the command line."""

    file: str
    changes: tuple[str, ...]
    """`path=value`, as given to --set."""
    name: str | None
    generate_name: bool
    code: tuple[Path, ...]
    """Files that are sent with the job."""
    wait: bool
    follow: bool
    plain: bool
    sweep: Request = field(default_factory=Request)


def submit(client: RLTrainingClient, options: SubmitOptions) -> int:
    """Creates the job, and waits for it if requested. Returns the exit code."""
    if options.wait and options.follow:
        raise UsageError("--wait and --follow exclude each other: leave one out")
    if options.sweep:
        return _submit_sweep(client, options)
    job = client.create(
        options.file,
        overrides=options.changes,
        name=options.name,
        generate_name=options.generate_name,
        code=options.code,
    )
    name, namespace = job.metadata.name, job.metadata.namespace or client.namespace
    say(f"{SINGULAR}.{GROUP}/{name} created")
    if hint := _code_hint(job):
        say(f"note: {hint}", err=True)
    there = client.in_namespace(namespace)
    if options.wait:
        return watch(there, name, plain=options.plain)
    if options.follow:
        return _follow(there, name)
    where = "" if namespace == client.namespace else f" -n {namespace}"
    say(f"see it with: rltrain watch {name}{where}", err=True)
    return Exit.OK


def _submit_sweep(client: RLTrainingClient, options: SubmitOptions) -> int:
    if options.generate_name:
        raise UsageError("--generate-name: the jobs of a sweep are numbered: name the sweep with --name")
    if options.follow:
        raise UsageError("--follow: is for one job: show a sweep with --wait")
    planned = plan(options.file, options.changes, options.sweep, options.name)
    made = sweep.create(client, planned, options.code)
    namespace = made[0].metadata.namespace or client.namespace
    if hint := _code_hint(made[0]):
        say(f"note: {hint}", err=True)
    if options.wait:
        return sweep.watch(client.in_namespace(namespace), planned.name, plain=options.plain)
    where = "" if namespace == client.namespace else f" -n {namespace}"
    say(
        f"see them with: rltrain get -l {sweep.selector(planned.name)}{where}\n"
        f"compare them with: rltrain compare {planned.name}{where}",
        err=True,
    )
    return Exit.OK


def _follow(client: RLTrainingClient, name: str) -> int:
    """Prints the learner's log until the job is over. Returns the exit code."""
    try:
        logs.logs(client, logs.LogsOptions(name, "learner", "0", follow=True))
        job = client.wait(name)
    except KeyboardInterrupt:
        say(f"The job continues; follow it with: rltrain logs {name} -f", err=True)
        return INTERRUPTED
    except JobFailedError as error:
        complain(str(error))
        return error.exit_code
    say(f"{job.status.phase}: {job.status.message}", err=True)
    return Exit.OK


def _code_hint(job: RLTrainingJob) -> str:
    """Returns a hint if user modules, which are found beside the manifest on one machine, may be
    missing in a cluster."""
    spec = job.spec
    own = spec.algorithm.entry_point
    modules = {
        "environment.id": spec.environment.id.rpartition(":")[0],
        **{
            f"environment.wrappers[{i}].entryPoint": (wrapper.entry_point or "").partition(":")[0]
            for i, wrapper in enumerate(spec.environment.wrappers)
        },
        "network.entryPoint": (spec.network.entry_point or "").partition(":")[0],
        "algorithm.entryPoint.module": own.module if own else "",
    }
    named = [f"{field} names the module {module}" for field, module in modules.items() if module]
    if not named or spec.code is not None or spec.image is not None:
        return ""
    return (
        f"{' and '.join(named)}: send the files with --code, or put them into an image (spec.image), "
        "unless the operator's trainer image has them"
    )
