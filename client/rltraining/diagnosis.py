"""Defines the commands that find out why a run does not work. Contains only options and help, as
`rltraining.cli`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rltraining.cluster.context import TARGET, ClusterContext, with_cluster_options
from rltraining.commands import MANIFEST, PLAIN, Overrides, command
from rltraining.errors import UsageError
from rltraining.local import require_local

app = typer.Typer()
_command = command(app)


@_command
@with_cluster_options
def doctor(context: ClusterContext) -> None:
    """Check whether this machine and the cluster are ready for runs.

    Prints a line for each check, with a remedy if something is missing: versions, packages, cores,
    memory, the limit of open files, free disk space in the current folder, and whether the API
    server of the kubeconfig answers and has the CustomResourceDefinition. Nothing is changed.

    Exit code: 1 if something prevents runs on this machine, or in a cluster that is named with
    --kubeconfig, --context or --namespace; otherwise 0.

    Examples:

      rltrain doctor
      rltrain doctor --context kind-rltraining
    """
    from rltraining import doctor as action

    raise typer.Exit(action.doctor(context))


@_command
@with_cluster_options
def why(
    context: ClusterContext,
    target: Annotated[str, TARGET],
) -> None:
    """Explain why a run is not faster.

    Names the bottleneck, the learner or the samplers, and what makes the run faster. While the run
    trains this is about its last seconds, afterwards about its end.

    Examples:

      rltrain why runs/first
      rltrain why cartpole --namespace team
    """
    from rltraining import why as action

    action.why(target, context.client)


@_command
@with_cluster_options
def plan(
    context: ClusterContext,
    target: Annotated[str, TARGET],
    samplers: Annotated[
        str | None,
        typer.Option(
            metavar="N,...",
            help="Numbers of samplers. Default: 1,2,4,8,16,32,64.",
        ),
    ] = None,
) -> None:
    """Predict how fast a run is with other numbers of samplers.

    Calculates the speed, the learner's load, the policy lag, and what the learner receives and sends, from the measured speed
    of the run, from the share of the time for which its learner waits for data, and from the bytes of a step. The model assumes
    that more processes run as fast as the measured ones. While the run trains, its last seconds count, and afterwards its end.

    Examples:

      rltrain plan runs/first
      rltrain plan cartpole --namespace team --samplers 10,100,500
    """
    from rltraining import plan as action

    action.plan(target, samplers, context.client)


@_command
def stack(
    run: Annotated[
        Path, typer.Argument(metavar="WORKDIR", help="Folder of a run that is training on this machine.")
    ],
    member: Annotated[
        str | None,
        typer.Argument(metavar="MEMBER", help="One process, such as sampler-0. Default: all."),
    ] = None,
) -> None:
    """Print what the processes of a run are doing: the Python stacks of their threads.

    Works also for a process that hangs, in an environment for example. The run continues. The logs
    of the run contain the same stacks. Processes of environments and of the evaluation are printed
    with the member that started them. Linux only.

    In a cluster: kubectl exec POD -c trainer -- sh -c 'kill -USR1 1', then rltrain logs.

    Examples:

      rltrain stack runs/first
      rltrain stack runs/first sampler-0
    """
    from rltraining import stack as action

    action.stack(run, member)


@_command
def audit(
    run: Annotated[
        Path, typer.Argument(metavar="WORKDIR", help="Folder of a run, which may still be training.")
    ],
) -> None:
    """Check a run from its own records: whether each item was counted exactly once.

    Prints a line for each rule, and its violations: `ok`, `bad`, or `-` if the records have nothing
    that the rule is about. The page "Trust a run" of the documentation describes the rules.

    Exit code: 1 if a rule is violated, otherwise 0.

    Examples:

      rltrain audit runs/first
    """
    from rltraining.trust import audit as action

    raise typer.Exit(action.audit(run))


@_command
def fork(
    run: Annotated[Path, typer.Argument(metavar="WORKDIR", help="Folder of the run to begin from.")],
    at: Annotated[
        int | None,
        typer.Option(
            "--at",
            min=0,
            metavar="STEP",
            help="Begin at the newest checkpoint with at most this number of environment steps. Default: the newest.",
        ),
    ] = None,
    overrides: Overrides = None,
    workdir: Annotated[
        Path | None,
        typer.Option(help="Folder for the new run. Default: runs/<job>-<time>."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in the folder.")] = False,
    plain: Annotated[bool, PLAIN] = False,
) -> None:
    """Begin a new run at a checkpoint of another run, with changed settings.

    The new run continues with the parameters, the optimizer and the counters of the checkpoint, and with the stop rules of the
    other run, which does not change. With spec.reproducible, both use the same random numbers, so that they differ only by the
    changed settings.

    Examples:

      rltrain fork runs/first --set stop.environmentSteps=2e6
      rltrain fork runs/first --at 200000 --set algorithm.ppo.learningRate=1e-4 --workdir runs/slower
    """
    require_local("rltrain fork")
    from rltraining import fork as action

    raise typer.Exit(action.fork(run, at, workdir, tuple(overrides or ()), overwrite=overwrite, plain=plain))


@_command
def rerun(
    run: Annotated[Path, typer.Argument(metavar="WORKDIR", help="Folder of a run with a recording.")],
    first: Annotated[
        int | None,
        typer.Option(
            "--from",
            min=0,
            help="Number of updates before the first one. Default: the oldest.",
        ),
    ] = None,
    last: Annotated[
        int | None,
        typer.Option(
            "--to",
            min=0,
            help="Number of updates before the last one. Default: the newest.",
        ),
    ] = None,
    overrides: Overrides = None,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug", help="Begin Python's debugger pdb in the last update, or where it raised an error."
        ),
    ] = False,
) -> None:
    """Make the recorded updates of a learner again on this machine, without samplers.

    A run with spec.recording keeps the data of its newest updates. Most runs with one learner also keep an update whose loss
    is NaN. This command makes these updates again, and compares the learner's state with the recorded one after each. With
    --set it uses another setting instead, such as a smaller learning rate. The run's folder does not change.

    Exit code: 0 if the states are equal, 1 if one differs.

    Examples:

      rltrain run cartpole-impala --set recording.megabytes=256 --workdir runs/first
      rltrain rerun runs/first
      rltrain rerun runs/first --from 100 --to 120 --set algorithm.impala.learningRate=1e-3
      rltrain rerun runs/first --debug
    """
    require_local("rltrain rerun")
    from rltraining.trust import rerun as action

    raise typer.Exit(action.rerun(run, first, last, tuple(overrides or ()), debug=debug))


@_command
@with_cluster_options
def chaos(
    context: ClusterContext,
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help=f"{MANIFEST} With --cluster, the name of a job in the cluster."),
    ],
    kill: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE=TIME",
            help="Kill a random process of the role, learner, sampler or replay, with this mean time between two kills. "
            "May be given repeatedly. Default: sampler=7s and learner=60s, unless --freeze is given.",
        ),
    ] = None,
    freeze: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE=TIME",
            help="Stop a random process of the role for 5 s, with this mean time between two stops.",
        ),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="TIME",
            help="Short for --set stop.seconds=N: 90s, 10m. With --cluster: when to stop the kills.",
        ),
    ] = None,
    workdir: Annotated[
        Path | None,
        typer.Option(help="Folder of the run. Default: runs/<job>-<time>."),
    ] = None,
    overrides: Overrides = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in this folder.")] = False,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Delete pods of a job that was submitted to a cluster.")
    ] = False,
) -> None:
    """Train while processes are killed and frozen at random times.

    The run continues until a rule of the job's `stop` holds. Afterwards the command prints how often
    each kind of disturbance occurred and how long recoveries took, and audits the run. The folder
    of the run contains all of it as chaos.json, and rltrain report shows it.

    With --cluster, pods of a submitted job are deleted without a grace period, until the job is over or the time of --for
    has passed. There is no audit, since the records are in the cluster.

    Exit code: that of rltrain run, and 1 if the audit finds a violation. With --cluster: 1 if the job fails.

    Examples:

      rltrain chaos cartpole-impala --for 1m
      rltrain chaos job.yaml --kill sampler=7s --kill learner=2m --freeze sampler=30s --for 10m
      rltrain chaos maze --cluster -n team-a --for 10m
    """
    if cluster:
        from rltraining.trust import cluster_chaos

        if workdir is not None or overwrite or overrides:
            raise UsageError("--cluster disturbs a submitted job: leave --workdir, --overwrite and --set out")
        raise typer.Exit(cluster_chaos.chaos(context.client(), file, kill or (), freeze or (), time))
    if context != ClusterContext():
        raise UsageError("--namespace, --context and --kubeconfig name a cluster: add --cluster")
    require_local("rltrain chaos without --cluster")
    from rltraining.run import RunOptions
    from rltraining.trust import chaos as action

    options = RunOptions(file, workdir, tuple(overrides or ()), resume=False, overwrite=overwrite, plain=True)
    raise typer.Exit(action.chaos(options, kill or (), freeze or (), time))


NAMES = ("doctor", "why", "plan", "chaos")
"""The names of these commands that take the options of a cluster."""
