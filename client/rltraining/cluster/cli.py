"""Defines the commands on a cluster. Contains only options and help, as `rltraining.cli`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from rltraining_api.names import Role

from rltraining.cluster.context import (
    CONTEXT,
    KUBECONFIG,
    NAMESPACE,
    TARGET,
    ClusterContext,
    complete_job,
    with_cluster_options,
)
from rltraining.commands import MANIFEST, PLAIN, Overrides, Seed, Seeds, Sweep, command
from rltraining.local import require_local

__all__ = ["CONTEXT", "KUBECONFIG", "NAMES", "NAMESPACE", "app"]

app = typer.Typer()
_command = command(app)

NAME = typer.Argument(metavar="NAME", help="Name of the job.", autocompletion=complete_job)
JOB_OR_FOLDER = typer.Argument(
    metavar="NAME|FOLDER", help="Name of the job, or folder of a run.", autocompletion=complete_job
)


@_command
@with_cluster_options
def submit(
    context: ClusterContext,
    file: Annotated[str, typer.Argument(metavar="FILE", help=MANIFEST)],
    overrides: Overrides = None,
    seed: Seed = None,
    name: Annotated[str | None, typer.Option(help="Name of the job. Default: the manifest's.")] = None,
    generate_name: Annotated[
        bool, typer.Option("--generate-name", help="Add five random letters, so each submit is a new job.")
    ] = False,
    code: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="A Python file to send with the job, in a ConfigMap. May be given repeatedly.",
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Watch the job until it is over.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print the learner's log until the job is over.")
    ] = False,
    plain: Annotated[bool, PLAIN] = False,
    sweep: Sweep = None,
    seeds: Seeds = None,
) -> None:
    """Create the job of a manifest in a cluster.

    Errors are reported before anything is created. Modules of your own, which rltrain run finds
    beside the manifest, are sent with --code. Alternatively add a ConfigMap to the file, which is
    applied with the job, and refer to it in spec.code. To change a running job, use scale, suspend,
    resume or kubectl apply.

    With --sweep or --seeds the command creates a sweep: a job for each value, combination of
    values, and seed, named NAME-0, NAME-1 and so on, with the label rltraining.dev/sweep=NAME.
    compare shows their results, and delete --sweep deletes them.

    Exit code: 0 when the job was created; with --wait or --follow 0 when it succeeded and 1 when it
    failed; 2 when the manifest is invalid or the name is taken; 3 when the cluster cannot be
    reached; 130 after Ctrl-C, which stops only the waiting: the job continues.

    Examples:

      rltrain submit cartpole-impala
      rltrain submit job.yaml --generate-name --seed 7 --set sampler.replicas=8
      rltrain submit job.yaml --code maze_env.py --code maze_net.py
      rltrain submit job.yaml --namespace team --wait
      rltrain submit job.yaml --sweep algorithm.impala.learningRate=1e-4,3e-4 --seeds 3
    """
    from rltraining.cluster import submit as action
    from rltraining.sweep.plan import Request

    changes = [*(overrides or ()), *(() if seed is None else (f"seed={seed}",))]
    options = action.SubmitOptions(
        file,
        tuple(changes),
        name,
        generate_name=generate_name,
        code=tuple(code or ()),
        wait=wait,
        follow=follow,
        plain=plain,
        sweep=Request(tuple(sweep or ()), seeds),
    )
    raise typer.Exit(action.submit(context.client(), options))


@_command
@with_cluster_options
def get(
    context: ClusterContext,
    name: Annotated[str | None, NAME] = None,
    output: Annotated[
        Literal["table", "wide", "json", "yaml", "name"],
        typer.Option("--output", "-o", help="What to print."),
    ] = "table",
    everywhere: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="The jobs of all namespaces.")
    ] = False,
    selector: Annotated[
        str,
        typer.Option("--selector", "-l", help="Only jobs with these labels: team=vision."),
    ] = "",
) -> None:
    """Show a job or all jobs, as kubectl get rltrainingjobs does.

    Examples:

      rltrain get
      rltrain get cartpole -o yaml
      rltrain get -A -o wide
    """
    from rltraining.cluster import get as action

    action.get(context.client(), name or "", output, selector, everywhere=everywhere)


@_command
@with_cluster_options
def watch(
    context: ClusterContext,
    name: Annotated[str, NAME],
    plain: Annotated[bool, PLAIN] = False,
) -> None:
    """Show a job live until it is over.

    The view contains progress, the learning curve from its beginning, pods and events, which are
    read from the job's status, its pods and its Events. A broken connection is restored.

    Exit code: 0 when the job succeeded, 1 when it failed, 2 when there is no such job or it was
    deleted, 3 when the cluster cannot be reached, 130 after Ctrl-C, which stops only the watching.

    Examples:

      rltrain watch cartpole
      rltrain watch cartpole --plain
    """
    from rltraining.cluster import watch as action

    raise typer.Exit(action.watch(context.client(), name, plain=plain))


@_command
@with_cluster_options
def report(
    context: ClusterContext,
    target: Annotated[str, TARGET],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE.html",
            help="Default: report.html in the folder of the run; <job>-report.html.",
        ),
    ] = None,
    no_video: Annotated[
        bool, typer.Option("--no-video", help="Do not play and film an episode of the policy.")
    ] = False,
) -> None:
    """Write a run as one HTML page.

    The page contains curves, speed, events, configuration and a video of the policy. It needs no
    other files: you can mail it, archive it and open it from a disk. The page of a run that still
    trains shows its progress so far. For a job in a cluster, the page contains what the API stores:
    the learning curve, conditions, Events and spec.

    Examples:

      rltrain report runs/first
      rltrain report runs/first --output first.html --no-video
      rltrain report cartpole --namespace team
    """
    require_local("rltrain report")
    from rltraining.report import command as action

    action.report(target, output, context.client, with_video=not no_video)


@_command
@with_cluster_options
def logs(
    context: ClusterContext,
    name: Annotated[str, NAME],
    role: Annotated[Role, typer.Option("--role", "-r", help="Role of the process.")] = "learner",
    index: Annotated[str, typer.Option("--index", "-i", metavar="N|all", help="Index of the process.")] = "0",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the log across restarts until the job ends.")
    ] = False,
    previous: Annotated[
        bool, typer.Option("--previous", "-p", help="Print the log from before the container's last restart.")
    ] = False,
    tail: Annotated[int | None, typer.Option(min=0, help="Print only the last N lines.")] = None,
) -> None:
    """Print the logs of a job's processes.

    With --index all, each line is preceded by the role and index of its pod. With --follow, new
    lines are printed, also from restarted containers, replaced pods and added samplers.

    Examples:

      rltrain logs cartpole -f
      rltrain logs cartpole --role sampler --index all --tail 10
      rltrain logs cartpole --previous
    """
    from rltraining.cluster import logs as action

    options = action.LogsOptions(name, role, index, follow=follow, previous=previous, tail=tail)
    action.logs(context.client(), options)


@_command
@with_cluster_options
def suspend(context: ClusterContext, name: Annotated[str, NAME]) -> None:
    """Suspend a job: its pods are deleted after a last checkpoint, which is kept only with `spec.checkpoint`.

    Example:

      rltrain suspend cartpole
    """
    from rltraining.cluster import change as action

    action.suspend(context.client(), name)


@_command
@with_cluster_options
def resume(context: ClusterContext, name: Annotated[str, NAME]) -> None:
    """Resume a suspended job, from its newest checkpoint if this was kept.

    Example:

      rltrain resume cartpole
    """
    from rltraining.cluster import change as action

    action.resume(context.client(), name)


@_command
@with_cluster_options
def scale(
    context: ClusterContext,
    name: Annotated[str, JOB_OR_FOLDER],
    samplers: Annotated[int, typer.Option(min=1, help="New number of samplers.")],
) -> None:
    """Change the number of samplers of a job while it runs, in a cluster or in a folder of this machine.

    Examples:

      rltrain scale cartpole --samplers 8
      rltrain scale runs/cartpole-20261121-014300 --samplers 4
    """
    from rltraining.cluster import change as action

    action.scale(context.client, name, samplers)


@_command
@with_cluster_options
def delete(
    context: ClusterContext,
    name: Annotated[str | None, NAME] = None,
    sweep: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="All jobs of this sweep instead of one job."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait until all pods are deleted.")] = False,
) -> None:
    """Delete a job with everything that belongs to it.

    This includes pods, and checkpoints in volumes that were created for the job.

    Examples:

      rltrain delete cartpole
      rltrain delete cartpole --wait
      rltrain delete --sweep cartpole
    """
    from rltraining.cluster import change as action

    action.delete(context.client(), name, sweep, wait=wait)


@_command
@with_cluster_options
def compare(
    context: ClusterContext,
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME...", help="Folders of sweeps and runs; names of sweeps in a cluster."),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object with every run.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, with a line for each point.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.png",
            help="Also draw the learning curves; .svg and .pdf work too.",
        ),
    ] = None,
) -> None:
    """Compare the results of several runs.

    The table has a row for each point of a sweep, over its seeds, the best first.

    A figure is the mean over the seeds ± their standard deviation. Failed runs are counted, and are
    in no other figure. If a stop rule requires a return, the best point reaches it in more of its
    runs, then in fewer steps. Otherwise the best point has the highest final return. Runs outside
    sweeps have a row each, unless they differ only in the seed.

    Examples:

      rltrain compare runs/cartpole-sweep-20261121-014300 --output comparison.png
      rltrain compare runs/first runs/second --json
      rltrain compare cartpole --namespace team
    """
    from rltraining.compare import command as action

    action.compare(names, context.client, output, in_json=as_json, in_csv=as_csv)


NAMES = tuple(str(info.callback.__name__) for info in app.registered_commands if info.callback)
"""The names of the commands on a cluster."""
