"""Defines the command `rltrain`. Contains only options and help. A command's module is imported
when the command is called, so that `rltrain --help` and shell completion are fast."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal

import typer

from rltraining import diagnosis
from rltraining.cluster import cli as cluster
from rltraining.commands import (
    MANIFEST,
    PLAIN,
    Commands,
    Overrides,
    Seed,
    Seeds,
    Sweep,
    command,
    print_errors,
    reflow,
)
from rltraining.errors import UsageError
from rltraining.export import Format
from rltraining.local import require_local
from rltraining.printable import say

app = typer.Typer(
    name="rltrain",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode=None,  # saves half a second for every --help
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


_command = command(app)


POLICY = typer.Argument(metavar="POLICY", help="Folder or URI of a policy, or a run's folder: runs/first.")
TRUST_CODE = typer.Option(
    "--trust-code", help="Allow the policy to run user code. Use this only if you trust its source."
)


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"rltrain {version('rltraining')}")
        raise typer.Exit


def rltrain(
    context_: typer.Context,
    namespace: Annotated[str | None, cluster.NAMESPACE] = None,
    context: Annotated[str | None, cluster.CONTEXT] = None,
    kubeconfig: Annotated[Path | None, cluster.KUBECONFIG] = None,
    _: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Distributed reinforcement learning from one manifest.

    A manifest (an RLTrainingJob, as it is applied to a Kubernetes cluster) goes in, a trained
    policy comes out. On this machine its learner and samplers are processes, and in a cluster they
    are pods. Everything else is the same.

    A first run:

      rltrain run cartpole-impala --workdir runs/first
      rltrain evaluate runs/first/policy

    With an environment of your own:

      rltrain init maze

    The same in a cluster (submit, get, watch, logs, suspend, resume, scale and delete are for
    clusters):

      rltrain submit cartpole-impala
      rltrain watch cartpole
    """
    given = {"namespace": namespace, "context": context, "kubeconfig": kubeconfig}
    options = {name: value for name, value in given.items() if value is not None}
    names = (*cluster.NAMES, *diagnosis.NAMES)
    if options and context_.invoked_subcommand not in names:
        with print_errors():
            raise UsageError(f"--{next(iter(options))}: is for commands on a cluster: {', '.join(names)}")
    context_.default_map = {name: options for name in names}


app.callback(help=reflow(rltrain.__doc__))(rltrain)


@_command
def run(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help=f"{MANIFEST} With --resume: the folder of the run, which you can also omit.",
        ),
    ] = None,
    workdir: Annotated[
        Path | None,
        typer.Option(help="Folder for the output of the run. Default: runs/<job>-<time>."),
    ] = None,
    overrides: Overrides = None,
    seed: Seed = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in this folder.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in this folder.")] = False,
    plain: Annotated[bool, PLAIN] = False,
    sweep: Sweep = None,
    seeds: Seeds = None,
    parallel: Annotated[int, typer.Option(min=1, help="Number of runs of a sweep that run in parallel.")] = 1,
    nice: Annotated[
        int,
        typer.Option(
            min=0, max=19, help="Lower the CPU priority of the run's processes, as `nice` does (0 to 19)."
        ),
    ] = 0,
) -> None:
    """Train from a manifest, on this machine.

    The operator's engine runs in this process, with processes as pods: a process that is killed is
    restarted, training resumes from the newest checkpoint, and an error that a restart cannot fix
    ends the run with a message.

    The folder of the run contains status.json (the job's complete status), job.yaml (the manifest
    as it was run), progress.jsonl, events.jsonl, learning_curve.png, checkpoints/, tensorboard/,
    logs/ and policy/.

    Ctrl-C stops the run after a last checkpoint, from which --resume continues. A second Ctrl-C
    ends it immediately.

    With --sweep or --seeds the command runs a sweep: a run for each value, combination of values,
    and seed, one after another, and at the end one table and one picture of all. A failed run does
    not end the sweep. After Ctrl-C, --resume runs the rest. With --resume and other stop rules, such as
    --set stop.environmentSteps=2e6, the runs of a sweep train longer.

    Exit code: 0 when the job succeeded, 1 when it failed, or a run of a sweep did, 2 when the
    manifest or the command is invalid, 130 after Ctrl-C (143 after SIGTERM).

    Examples:

      rltrain run cartpole-impala
      rltrain run job.yaml --set algorithm=ppo
      rltrain run job.yaml --seed 7 --set sampler.replicas=4 --set stop.environmentSteps=1e6
      rltrain run job.yaml --sweep algorithm.impala.learningRate=1e-4,3e-4 --seeds 3
      rltrain run job.yaml --sweep 'network.mlp.hiddenSizes=[64],[64,64]' --sweep sampler.replicas=1,2 --parallel 2
      rltrain run runs/cartpole-20261121-014300 --resume
      kubectl get rlj/cartpole -o yaml | rltrain run - --plain
    """
    require_local("rltrain run")
    from rltraining import run as command
    from rltraining.sweep.plan import Request

    changes = [*(overrides or ()), *(() if seed is None else (f"seed={seed}",))]
    options = command.RunOptions(
        file,
        workdir,
        tuple(changes),
        resume=resume,
        overwrite=overwrite,
        plain=plain,
        sweep=Request(tuple(sweep or ()), seeds),
        parallel=parallel,
        nice=nice,
    )
    raise typer.Exit(command.run(options))


@_command
def examples() -> None:
    """List the built-in examples: their names and what they train.

    A name can be given to run, validate, explain and submit in place of a file. The last line, on
    standard error, has the folder of the manifests and of the modules that they import. Examples of Atari
    games need the extra atari: pip install -c constraints.txt dist/*.whl 'rltraining[atari]'.

    Example:

      rltrain examples
    """
    from rltraining import built_in

    built_in.print_list()


@_command
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.")],
    name: Annotated[
        str | None,
        typer.Option(help="Name of the job and its modules. Default: the folder's."),
    ] = None,
) -> None:
    """Start a project with an environment and a network of your own.

    The project is ready to train, and you can replace every part: job.yaml, an environment with
    gymnasium's interface, a network in torch, tests, a Dockerfile, and a README.md with all
    commands.

    Examples:

      rltrain init maze && rltrain run maze
      rltrain init . --name maze
    """
    from rltraining import init as command

    command.init(folder, name)


@_command
def validate(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="Manifests, folders with a job.yaml, or names of built-in examples; - reads standard input.",
        ),
    ],
    print_: Annotated[
        bool,
        typer.Option(
            "--print", help="Print the jobs as an API server stores them: with the defaults for all tasks."
        ),
    ] = False,
    overrides: Overrides = None,
) -> None:
    """Check manifests and report all errors, a sentence each.

    The checks are those of the cluster's API server and of the operator. Where the trainer is
    installed, environments are looked up in the installed packages. An environment that may be in
    another package, such as one of a cluster's image, is a warning. Only run and explain import your
    modules and check the environment's spaces. Exit code: 0 if all manifests are valid, otherwise 2.

    Examples:

      rltrain validate jobs/*.yaml
      rltrain validate job.yaml --print
      rltrain validate job.yaml --set algorithm=ppo
    """
    from rltraining import validate as command

    command.validate(files, tuple(overrides or ()), print_jobs=print_)


@_command
def explain(
    file: Annotated[str, typer.Argument(metavar="FILE", help=MANIFEST)],
    preset: Annotated[
        Literal["Atari", "MuJoCo", "Classic"] | None,
        typer.Option(help="Preset. Default: chosen by the environment's spaces."),
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Print every setting of a job with its value and the source of the value.

    A value is set in your manifest, by the preset for the kind of task (Atari, MuJoCo or Classic),
    or by a default for all tasks. The environment's spaces choose the preset unless --preset or
    spec.preset is given; the command makes the environment once to read them,
    and fails if the algorithm does not support them.

    Examples:

      rltrain explain job.yaml
      rltrain explain job.yaml --preset MuJoCo
      rltrain explain job.yaml --set algorithm=a2c
    """
    from rltraining import explain as command

    command.explain(file, tuple(overrides or ()), preset)


@_command
def crd() -> None:
    """Print the CustomResourceDefinition to install in a cluster.

    The definition is generated from the models that check manifests, so kubectl and rltrain report
    the same errors.

    Example:

      rltrain crd | kubectl apply --server-side -f -
    """
    from rltraining_api.crd import crd_yaml

    say(crd_yaml(), nl=False)


@_command
def evaluate(
    policy: Annotated[str, POLICY],
    episodes: Annotated[int, typer.Option(min=1, help="Number of episodes to play.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Seed of environments and actions.")] = 0,
    envs: Annotated[int, typer.Option(min=1, help="Environments that are stepped together.")] = 16,
    stochastic: Annotated[
        bool,
        typer.Option(
            "--stochastic", help="Draw actions as in training, instead of taking the most likely ones."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    video: Annotated[
        Path | None, typer.Option(metavar="FILE.mp4|gif", help="Also record an episode.")
    ] = None,
    trust_code: Annotated[bool, TRUST_CODE] = False,
) -> None:
    """Play episodes with a trained policy and report their returns.

    The folder of a policy is enough: no cluster, learner or manifest is needed.

    If the environment or the network is user code, that code runs only with --trust-code. Use the flag only for
    policies from a source that you trust. Installed packages need no flag. User code is found beside the manifest as
    long as the policy is in its run's folder; otherwise put it on PYTHONPATH.

    Examples:

      rltrain evaluate runs/first/policy
      rltrain evaluate runs/first/policy --episodes 20 --stochastic --seed 1 --json
      rltrain evaluate runs/first/policy --video cartpole.gif
      rltrain evaluate runs/maze --trust-code
    """
    require_local("rltrain evaluate")
    from rltraining import evaluate as command

    options = command.EvaluateOptions(
        policy,
        episodes,
        seed,
        envs,
        stochastic=stochastic,
        as_json=as_json,
        video=video,
        trust_code=trust_code,
    )
    command.evaluate(options)


@_command
def export(
    policy: Annotated[str, POLICY],
    form: Annotated[Format, typer.Option("--format", help="What to write.")] = "torch-export",
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Default: beside the policy."),
    ] = None,
    trust_code: Annotated[bool, TRUST_CODE] = False,
) -> None:
    """Write a policy as one file that runs without this package.

    torch-export writes a .pt2 (torch.export.load), torchscript a .pt (torch.jit.load, also from
    C++), onnx a .onnx for ONNX Runtime and others (requires the extra onnx).

    The file is written only if its outputs match the policy's for random observations, in batches
    of several sizes. A network that is user code requires --trust-code, as with evaluate.

    Examples:

      rltrain export runs/first/policy
      rltrain export runs/first/policy --format torchscript --output cartpole.pt
      rltrain export runs/first --format onnx --output cartpole.onnx
    """
    require_local("rltrain export")
    from rltraining import export as command

    command.export(policy, form, output, trust_code=trust_code)


app.add_typer(cluster.app)
app.add_typer(diagnosis.app)


def main() -> None:
    """Runs the command. Entry point of the `rltrain` script."""
    try:
        app()
    except SystemExit as ended:
        # An environment that was played may have threads that never end.
        if (trainer := sys.modules.get("rltraining_trainer.process")) is not None:
            trainer.end_soon(ended.code if isinstance(ended.code, int) else int(ended.code is not None))
        raise
