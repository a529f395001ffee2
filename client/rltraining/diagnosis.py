"""Defines the commands that find out why a run does not work. Contains only options and help, as
`rltraining.cli`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rltraining.cluster.place import Place, with_place
from rltraining.commands import command, refusals

app = typer.Typer()
_command = command(app)


@_command
@with_place
def doctor(place: Place) -> None:
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
    with refusals():
        from rltraining import doctor as action

        raise typer.Exit(action.doctor(place))


@_command
def stack(
    run: Annotated[
        Path, typer.Argument(metavar="WORKDIR", help="Folder of a run that trains on this machine.")
    ],
    member: Annotated[
        str | None,
        typer.Argument(
            metavar="MEMBER", help="One process, such as sampler-0. Default: all.", show_default=False
        ),
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
    with refusals():
        from rltraining import stack as action

        action.stack(run, member)


NAMES = ("doctor",)
"""The names of these commands that take the options of a cluster."""
