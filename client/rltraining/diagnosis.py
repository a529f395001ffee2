"""Defines the commands that find out why a run does not work. Contains only options and help, as
`rltraining.cli`."""

from __future__ import annotations

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


NAMES = ("doctor",)
"""The names of these commands that take the options of a cluster."""
