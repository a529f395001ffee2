"""Defines the options that select a cluster and a namespace, and the completion of job names."""

from __future__ import annotations

import inspect
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rltraining.errors import ClientError

if TYPE_CHECKING:
    from rltraining.sdk.client import RLTrainingClient

COMPLETIONS_MAX = 500
NAMESPACE = typer.Option("--namespace", "-n", help="Default: the context's.")
CONTEXT = typer.Option("--context", help="A context of the kubeconfig. Default: the current one.")
KUBECONFIG = typer.Option("--kubeconfig", help="Default: KUBECONFIG, or ~/.kube/config.")
OPTIONS = {
    "namespace": Annotated[str | None, NAMESPACE],
    "context": Annotated[str | None, CONTEXT],
    "kubeconfig": Annotated[Path | None, KUBECONFIG],
}


@dataclass(frozen=True)
class ClusterContext:
    """A cluster and a namespace, as given by the options."""

    namespace: str | None = None
    context: str | None = None
    kubeconfig: Path | None = None

    def client(self) -> RLTrainingClient:
        """Returns a client. Imports the Kubernetes client, which takes most of a second."""
        from rltraining.sdk.client import RLTrainingClient

        return RLTrainingClient(self.namespace, self.context, self.kubeconfig)


def with_cluster_options(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the options --namespace, --context and --kubeconfig. The command receives them as its
    first argument, a `ClusterContext`."""
    signature = inspect.signature(function, eval_str=True)
    _, *own = signature.parameters.values()
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in OPTIONS.items()
    ]

    def command(**values: Any) -> None:
        context = ClusterContext(**{name: values.pop(name) for name in OPTIONS})
        # The Kubernetes client writes keys to temporary files, and removes them at a regular exit.
        before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        try:
            function(context, **values)
        finally:
            signal.signal(signal.SIGTERM, before)

    command.__doc__, command.__name__ = function.__doc__, function.__name__
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *added)}
    command.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own), *added]
    )
    return command


def complete_job(ctx: typer.Context, incomplete: str) -> list[str]:
    """Returns the names of jobs that start with these letters, or none if the cluster does not
    answer."""
    given = {
        **(ctx.parent.params if ctx.parent else {}),
        **{k: v for k, v in ctx.params.items() if v is not None},
    }
    try:
        context = ClusterContext(*(given.get(name) for name in OPTIONS))
        client = context.client()
        table = client.jobs.table(limit=COMPLETIONS_MAX)
    except ClientError:
        return []
    names = (row["object"]["metadata"]["name"] for row in table.get("rows") or ())
    return [name for name in names if name.startswith(incomplete)]


TARGET = typer.Argument(
    metavar="WORKDIR|JOB",
    help="Folder of a run on this machine, or the name of a job in a cluster.",
    autocompletion=complete_job,
)
"""The argument of commands that read a run or a job."""
