"""The `rltrain` command. Wiring only: what a command does is in a module that is imported when it is called, so that
`rltrain --help` and shell completion answer at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from rltraining.errors import ClientError
from rltraining.export import Format

F = TypeVar("F", bound=Callable[..., Any])

app = typer.Typer(
    name="rltrain",
    no_args_is_help=True,
    rich_markup_mode=None,  # half a second less for every --help
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _reflow(docstring: str | None) -> str:
    """A docstring as help: text is wrapped to the terminal; what is indented (after a \\b, for click) stays."""
    paragraphs = cleandoc(docstring or "").split("\n\n")
    return "\n\n".join(f"\b\n{text}" if text.startswith(" ") else text for text in paragraphs)


def _command(function: F) -> F:
    return app.command(help=_reflow(function.__doc__))(function)


def _top(function: F) -> F:
    return app.callback(help=_reflow(function.__doc__))(function)


POLICY = typer.Argument(metavar="POLICY", help="Folder or URI of a policy, or a run's folder: runs/first.")


@contextmanager
def _refusals() -> Iterator[None]:
    """What cannot be done is said in sentences on standard error; a traceback is for bugs."""
    try:
        yield
    except ClientError as error:
        for problem in error.problems:
            typer.secho("error: ", fg="red", bold=True, nl=False, err=True)
            typer.echo(problem, err=True)
        raise typer.Exit(error.exit_code) from None


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rltrain {version('rltraining')}")
        raise typer.Exit


@_top
def rltrain(
    _: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Distributed reinforcement learning from one manifest.

    A manifest (an RLTrainingJob, as it is applied to a Kubernetes cluster) goes in, a trained policy comes out.
    On this machine its learner and samplers are processes; in a cluster they are pods; the rest is the same.

    A first run:

      rltrain run examples/cartpole-impala.yaml --workdir runs/first
      rltrain evaluate runs/first/policy
    """


@_command
def run(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help="The manifest; - reads standard input. With --resume it may be the folder of the run, or nothing.",
        ),
    ] = None,
    workdir: Annotated[
        Path | None,
        typer.Option(
            help="Folder for everything the run leaves. Default: runs/<job>-<time>.", show_default=False
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="PATH=VALUE", help="Change a field of the manifest. May be given repeatedly."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Short for --set seed=N.", show_default=False)] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in the folder.")] = False,
    plain: Annotated[
        bool, typer.Option("--plain", help="Lines of text, as when the output is not a terminal.")
    ] = False,
) -> None:
    """Train from a manifest, on this machine.

    The operator's own engine runs here, with processes for pods: a process that is killed is restarted, training
    goes on from the newest checkpoint, and what cannot work ends the run with a message.

    The folder of the run holds status.json (the job's whole status), job.yaml (the manifest
    as it was run), progress.jsonl, learning_curve.png, checkpoints/, tensorboard/, logs/ and policy/.

    Ctrl-C ends in order: a checkpoint is written, and --resume goes on from there. A second Ctrl-C ends at once.

    Exit code: 0 when the job succeeded, 1 when it failed, 2 when the manifest or the command is not right,
    130 after Ctrl-C (143 after SIGTERM).

    Examples:

      rltrain run examples/cartpole-impala.yaml
      rltrain run job.yaml --seed 7 --set sampler.replicas=4 --set stop.environmentSteps=1e6
      rltrain run runs/cartpole-20261121-014300 --resume
      kubectl get rlj/cartpole -o yaml | rltrain run - --plain
    """
    with _refusals():
        from rltraining import run as command

        changes = [*(overrides or ()), *(() if seed is None else (f"seed={seed}",))]
        options = command.Options(
            file, workdir, tuple(changes), resume=resume, overwrite=overwrite, plain=plain
        )
        raise typer.Exit(command.run(options))


@_command
def validate(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Manifests; - reads standard input.")],
    print_: Annotated[
        bool, typer.Option("--print", help="Print the jobs with all defaults filled in.")
    ] = False,
) -> None:
    """Check manifests; say everything that is wrong, a sentence each.

    The same models check here, in the cluster's API server and in the operator. Environments and modules are looked up
    only by run. Exit code: 0 when all are right, else 2.

    Examples:

      rltrain validate examples/*.yaml
      rltrain validate job.yaml --print
    """
    with _refusals():
        from rltraining import validate as command

        command.validate(files, print_jobs=print_)


@_command
def crd() -> None:
    """Print the CustomResourceDefinition to install in a cluster.

    It is made from the models that check manifests, so kubectl and rltrain say the same.

    Example:

      rltrain crd | kubectl apply --server-side -f -
    """
    from rltraining_api.crd import crd_yaml

    typer.echo(crd_yaml(), nl=False)


@_command
def evaluate(
    policy: Annotated[str, POLICY],
    episodes: Annotated[int, typer.Option(min=1, help="How many episodes to play.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Seed of environments and actions.")] = 0,
    envs: Annotated[int, typer.Option(min=1, help="Environments that are stepped together.")] = 16,
    stochastic: Annotated[
        bool,
        typer.Option("--stochastic", help="Draw actions as in training, instead of taking the likeliest."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False,
    video: Annotated[
        Path | None, typer.Option(metavar="FILE.mp4", help="Also record an episode.", show_default=False)
    ] = None,
) -> None:
    """Play episodes with a trained policy and tell their returns.

    The folder of a policy holds all that is needed: no cluster, no learner, no manifest. User code that the
    environment or the network comes from is found beside the manifest while the policy lies in its run's folder;
    otherwise put it on PYTHONPATH.

    Examples:

      rltrain evaluate runs/first/policy
      rltrain evaluate runs/first/policy --episodes 20 --stochastic --seed 1 --json
      rltrain evaluate runs/first/policy --video cartpole.mp4
    """
    with _refusals():
        from rltraining import evaluate as command

        options = command.Options(
            policy, episodes, seed, envs, stochastic=stochastic, as_json=as_json, video=video
        )
        command.evaluate(options)


@_command
def export(
    policy: Annotated[str, POLICY],
    form: Annotated[Format, typer.Option("--format", help="What to write.")] = Format.TORCH_EXPORT,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Default: beside the policy.", show_default=False),
    ] = None,
) -> None:
    """Write a policy as one file that runs without this package.

    torch-export gives a .pt2 (torch.export.load), torchscript a .pt (torch.jit.load, also from C++).

    Examples:

      rltrain export runs/first/policy
      rltrain export runs/first/policy --format torchscript --output cartpole.pt
    """
    with _refusals():
        from rltraining import export as command

        command.export(policy, form, output)


def main() -> None:
    """Entry point of the `rltrain` script."""
    app()
