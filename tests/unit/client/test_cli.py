"""What the commands say when nothing has to be trained for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import rltrain
from rltraining.cli import app
from rltraining.jobfile import JobFile, load
from rltraining_api.crd import crd_yaml
from rltraining_api.manifest import load_manifest
from rltraining_api.status import Status
from typer.testing import CliRunner

COMMANDS = ("run", "init", "validate", "crd", "evaluate", "export")


def test_help_names_every_command_and_a_first_run() -> None:
    text = rltrain("--help").output
    assert all(command in text for command in COMMANDS)
    assert "rltrain run examples/cartpole-impala.yaml" in text


def test_help_says_what_every_command_does_in_a_line_of_a_terminal() -> None:
    text = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"}).invoke(app, ["--help"]).output
    assert [line for line in text.splitlines() if line.endswith("...") and "COMMAND" not in line] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_teaches_by_example(command: str) -> None:
    result = rltrain(command, "--help")
    assert result.exit_code == 0
    assert "Example" in result.output
    assert f"rltrain {command}" in result.output


def test_version() -> None:
    assert rltrain("--version").output == "rltrain 0.1.0\n"


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys, rltraining.cli; print([m for m in ('torch', 'pydantic', 'numpy') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "[]\n"


def test_a_run_does_not_load_torch_into_its_own_process() -> None:
    """It would cost seconds before anything is seen, and memory all the time."""
    program = (
        "import sys, rltraining.run, rltraining.view, rltraining.curve; "
        "print([m for m in ('torch', 'gymnasium', 'matplotlib', 'plotext') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "[]\n"


def test_a_right_manifest_is_ok(file: Path) -> None:
    result = rltrain("validate", file)
    assert result.exit_code == 0
    assert result.stdout == f"ok: {file}: cartpole (impala on CartPole-v1)\n"


@pytest.mark.parametrize(
    ("algorithm", "name"),
    [
        ("a3c: {}", "a3c"),
        ("a2c: {}", "a2c"),
        ("ppo: {}", "ppo"),
        ("entryPoint: {module: my_package.algorithm}", "my_package.algorithm"),
    ],
)
def test_every_algorithm_can_be_validated(algorithm: str, name: str, manifest: str) -> None:
    result = rltrain("validate", "-", stdin=manifest.replace("impala: {}", algorithm))
    assert (result.exit_code, result.stdout) == (0, f"ok: -: cartpole ({name} on CartPole-v1)\n"), (
        result.stderr
    )


def test_all_problems_of_all_files_are_told(file: Path, manifest: str, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(manifest.replace("replicas: 2", "replicas: -2, foo: 1"))
    result = rltrain("validate", bad, file, tmp_path / "nope.yaml")
    assert result.exit_code == 2
    assert result.stdout.startswith(f"ok: {file}")
    assert result.stderr.splitlines() == [
        f"error: {bad}: spec.sampler.replicas: must be at least 1, got -2",
        f"error: {bad}: spec.sampler.foo: is not a known field: known are replicas, template",
        f"error: {tmp_path / 'nope.yaml'}: there is no such file",
    ]


def test_printed_jobs_can_be_used_again(file: Path) -> None:
    result = rltrain("validate", file, "--print")
    assert result.stderr.startswith("ok: ")
    assert load_manifest(result.stdout).spec == load_manifest(file).spec
    assert "unrollLength: 20" in result.stdout


def test_standard_input_and_documents_of_other_kinds(manifest: str) -> None:
    other = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: code}\n"
    result = rltrain("validate", "-", stdin=manifest + other)
    assert result.exit_code == 0
    assert "note: -: ConfigMap code is not an RLTrainingJob" in result.stdout


def test_files_without_a_job_are_not_ok(file: Path) -> None:
    other = file.parent / "code.yaml"
    other.write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: code}\n")
    note = f"note: {other}: ConfigMap code is not an RLTrainingJob and was not checked\n"
    alone = rltrain("validate", other)
    assert alone.exit_code == 2
    assert alone.stdout == note
    assert alone.stderr == f"error: {other}: holds no RLTrainingJob: nothing was checked\n"
    beside = rltrain("validate", other, file)
    assert beside.exit_code == 0
    assert beside.stdout == note + f"ok: {file}: cartpole (impala on CartPole-v1)\n"
    assert len(rltrain("validate", other, file, "--print").stdout.split("---\n")) == 2


def test_crd_prints_what_is_applied_to_a_cluster() -> None:
    assert rltrain("crd").stdout == crd_yaml()


BAD_MANIFESTS = {
    "unknown key": ("stop:", "stopp: {}\n  stop:", "spec.stopp: is not a known field: did you mean stop?"),
    "unknown hyperparameter": (
        "impala: {}",
        "impala: {lr: 1}",
        "spec.algorithm.impala.lr: is not a known field",
    ),
    "two algorithms": (
        "impala: {}",
        "impala: {}, ppo: {}",
        "exactly one algorithm is needed, found two: ppo and impala",
    ),
    "negative number": ("replicas: 2", "replicas: -2", "spec.sampler.replicas: must be at least 1, got -2"),
    "wrong type": ("replicas: 2", "replicas: two", 'spec.sampler.replicas: must be an integer, got "two"'),
    "not YAML": ("stop: {", "stop: {{", "line"),
    "another kind": ("RLTrainingJob", "Job", "kind: must be RLTrainingJob"),
}


@pytest.mark.parametrize(("old", "new", "sentence"), BAD_MANIFESTS.values(), ids=BAD_MANIFESTS.keys())
def test_a_bad_manifest_is_refused_in_a_sentence_before_anything_is_made(
    file: Path, manifest: str, old: str, new: str, sentence: str
) -> None:
    file.write_text(manifest.replace(old, new))
    result = rltrain("run", file, "--workdir", file.parent / "run")
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert all(line.startswith(f"error: {file}: ") for line in result.stderr.splitlines())
    assert not (file.parent / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["{file}", "--set", "seed"], "--set seed: must be path=value"),
        (
            ["{file}", "--set", "sampler.replica=2"],
            "spec.sampler.replica: is not a known field: did you mean replicas?",
        ),
        (["{file}", "--seed", "-1"], "spec.seed: must be at least 0, got -1"),
        (
            ["{file}", "--set", "runPolicy.suspend=true"],
            "spec.runPolicy.suspend: is true, so nothing would run",
        ),
        (["{file}", "--set", "runPolicy.managedBy=example.com/x"], "names another controller"),
        (
            ["{file}", "--set", "code={{configMap: {{name: my-code}}}}"],
            "spec.code.configMap.name: the ConfigMap my-code is not in the manifest's file: add it there",
        ),
        (["{file}", "--workdir", "{here}"], "holds a job.yaml of yours, which a run would replace"),
        (["{file}", "--resume", "--overwrite"], "--resume and --overwrite exclude each other"),
        (["{file}", "--resume", "--workdir", "{here}"], "holds no run to resume"),
        (["--resume", "--workdir", "{here}"], "holds no run to resume"),
        (["{here}", "--resume"], "holds no run to resume"),
        (["{here}"], "is a folder, a file is needed"),
        (["--workdir", "{here}"], "FILE is missing: name a manifest, or continue a run with --resume"),
        (["{file}", "--workdir", "{file}"], "is a file, a folder is needed"),
    ],
)
def test_a_command_that_cannot_be_meant_is_refused(file: Path, arguments: list[str], sentence: str) -> None:
    result = rltrain("run", *(a.format(file=file, here=file.parent) for a in arguments))
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert [path.name for path in file.parent.iterdir()] == ["job.yaml"] or not result.stderr.count(
        "Traceback"
    )


def test_a_folder_with_a_run_is_left_alone(file: Path) -> None:
    run = file.parent / "run"
    run.mkdir()
    load(str(file)).save(run / "job.yaml")
    result = rltrain("run", file, "--workdir", run)
    assert result.exit_code == 2
    assert "holds a run already: continue it with --resume, replace it with --overwrite" in result.stderr
    assert [path.name for path in run.iterdir()] == ["job.yaml"]


def test_a_run_whose_manifest_is_gone_asks_for_it(tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "step-000000031964").mkdir(parents=True)
    result = rltrain("run", tmp_path, "--resume")
    assert (result.exit_code, result.stderr) == (
        2,
        f"error: --workdir {tmp_path}: its job.yaml is gone: name the manifest: "
        f"rltrain run FILE --workdir {tmp_path} --resume\n",
    )


def test_a_runs_folder_is_no_manifest(file: Path) -> None:
    load(str(file)).save(file)
    result = rltrain("run", file.parent)
    assert result.exit_code == 2
    assert result.stderr == (
        f"error: {file.parent}: is the folder of a run: to go on with this run add --resume\n"
    )


@pytest.mark.parametrize(
    "arguments", [["{run}"], ["{file}", "--workdir", "{run}"], ["{run}", "--set", "seed=7"]]
)
def test_a_run_that_has_succeeded_does_not_go_on(file: Path, arguments: list[str]) -> None:
    run = file.parent / "run"
    run.mkdir()
    found = load(str(file))
    found.save(run / "job.yaml")
    status = Status(phase="Succeeded", message="stop.environmentSteps is met")
    (run / "status.json").write_text(json.dumps(found.job.model_copy(update={"status": status}).to_dict()))
    before = (run / "job.yaml").read_text()
    result = rltrain("run", "--resume", *(a.format(file=file, run=run) for a in arguments))
    assert result.exit_code == 2
    assert result.stderr == (
        "error: this run has succeeded already (stop.environmentSteps is met); "
        "to train on, raise the rule with --set stop...\n"
    )
    assert (run / "job.yaml").read_text() == before


def test_a_run_is_not_resumed_with_another_algorithm(file: Path, manifest: str) -> None:
    run = file.parent / "run"
    run.mkdir()
    found = load(str(file))
    found.save(run / "job.yaml")
    (run / "status.json").write_text(json.dumps(found.job.to_dict()))
    before = (run / "job.yaml").read_text()
    file.write_text(manifest.replace("impala: {}", "ppo: {}"))
    result = rltrain("run", file, "--workdir", run, "--resume")
    assert (result.exit_code, result.stderr) == (
        2,
        f"error: --resume: {run} was begun with impala, and its checkpoints are of no use to ppo: "
        "choose another --workdir\n",
    )
    assert (run / "job.yaml").read_text() == before


def test_a_run_on_a_full_disk_is_refused_in_a_sentence(
    file: Path, small_disk: Path, fill: Callable[[], None]
) -> None:
    folder = small_disk / "run"
    folder.mkdir()
    fill()
    result = rltrain("run", file, "--workdir", folder)
    assert (result.exit_code, result.stderr) == (
        2,
        f"error: --workdir {folder}: cannot be written: No space left on device\n",
    )
    assert not (folder / "job.yaml").exists()


def test_a_folder_whose_path_is_no_text_is_refused(file: Path, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"\xff")
    told = f"{tmp_path}/?: its path is not UTF-8: name another\n"

    def refused(*more: str) -> bool:
        result = rltrain("run", file, "--workdir", folder, *more)
        return (result.exit_code, result.stderr) == (2, f"error: --workdir {told}")

    assert refused()
    assert refused("--seeds", "2")
    assert not folder.exists()
    folder.mkdir()
    JobFile(load_manifest(file)).save(folder / "job.yaml")
    assert refused("--resume")
    result = rltrain("report", folder)
    assert (result.exit_code, result.stderr) == (2, f"error: {told}")


def test_a_full_disk_below_the_output_is_told_in_a_sentence() -> None:
    program = "from rltraining.cli import app; app(['crd'])"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", program], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (2, "error: the output: No space left on device\n")


def test_the_examples_are_right() -> None:
    examples = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))
    result = rltrain("validate", *examples)
    assert result.exit_code == 0, result.stderr
    assert len(result.stdout.splitlines()) == len(examples) > 0
