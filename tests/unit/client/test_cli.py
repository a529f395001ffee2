"""Output of the commands in cases that need no training."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from command_line import refused, rltrain, succeeded
from rltraining.jobfile import JobFile, load
from rltraining_api.crd import FILE_NAME
from rltraining_api.manifest import load_manifest
from rltraining_api.status import Status

COMMITTED_CRD = Path(__file__).parents[3] / "crds" / FILE_NAME


def test_version() -> None:
    assert succeeded("--version") == "rltrain 0.1.0\n"


@pytest.mark.parametrize(
    ("imported", "unwanted"),
    [
        ("rltraining.sdk, rltraining.errors", {"torch", "kubernetes", "pydantic", "yaml", "typer"}),
        ("rltraining.cli", {"torch", "pydantic", "numpy"}),
        (
            "rltraining.run, rltraining.view, rltraining.curve",
            {"torch", "gymnasium", "matplotlib", "plotext"},
        ),
    ],
)
def test_an_import_does_not_load_heavy_packages(imported: str, unwanted: set[str]) -> None:
    """Importing each of them would take seconds before any output, and memory during the run."""
    program = f"import sys, {imported}; print([m for m in {unwanted} if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "[]\n"


def test_a_right_manifest_is_ok(file: Path) -> None:
    result = rltrain("validate", file)
    assert (result.exit_code, result.stdout) == (0, f"ok: {file}: cartpole (impala on CartPole-v1)\n")


def test_validate_names_the_command_that_checks_the_spaces() -> None:
    """CartPole has discrete actions, for which SAC cannot be used."""
    assert (
        "the environment's spaces is checked by rltrain explain"
        in rltrain("validate", "cartpole-impala", "--set", "algorithm=sac").stderr
    )
    assert "spec.algorithm.sac" in refused("explain", "cartpole-impala", "--set", "algorithm=sac", code=1)


@pytest.mark.parametrize(
    ("algorithm", "warning"),
    [
        (
            "{a2c: {aggregate: {maxPolicyLag: 4}}}",
            "spec.algorithm.a2c.aggregate.maxPolicyLag: has no effect in mode Sync, in which no gradient is old: leave it out, "
            "or set spec.algorithm.a2c.aggregate.mode to Async",
        ),
        (
            "{ppo: {aggregate: {maxPolicyLag: null}}}",
            "spec.algorithm.ppo.aggregate.maxPolicyLag: has no effect in mode Sync, in which no gradient is old: leave it out",
        ),
        ("{a2c: {aggregate: {maxPolicyLag: 16}}}", None),
        ("{a2c: {aggregate: {maxPolicyLag: 4, mode: Async}}}", None),
        ("{a3c: {aggregate: {maxPolicyLag: 4}}}", None),
    ],
)
def test_validate_warns_of_a_policy_lag_without_effect(
    file: Path, algorithm: str, warning: str | None
) -> None:
    lines = succeeded("validate", file, "--set", f"algorithm={algorithm}").splitlines()
    assert lines[1:] == ([] if warning is None else [f"warning: {file}: {warning}"])


def test_all_problems_of_all_files_are_told(file: Path, manifest: str, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(manifest.replace("replicas: 2", "replicas: -2, foo: 1"))
    result = rltrain("validate", bad, file, tmp_path / "nope.yaml")
    assert result.exit_code == 2
    assert result.stdout.startswith(f"ok: {file}")
    assert result.stderr.splitlines() == [
        f"error: {bad}: spec.sampler.replicas: must be at least 1, got -2",
        f"error: {bad}: spec.sampler.foo: is not a known field: known are replicas, autoscale, template",
        f"error: {tmp_path / 'nope.yaml'}: there is no such file",
    ]


def test_printed_jobs_can_be_used_again(file: Path) -> None:
    result = rltrain("validate", file, "--print")
    assert result.stderr.startswith("ok: ")
    assert load_manifest(result.stdout).spec == load_manifest(file).spec
    assert "maxPolicyLag: 32" in result.stdout
    assert "learningRate" not in result.stdout, "the trainer's to fill in"


def test_all_jobs_are_checked_with_the_changes(file: Path, manifest: str) -> None:
    file.write_text(f"{manifest}\n---\n{manifest.replace('name: cartpole', 'name: second')}")
    changed = ("--set", "algorithm=ppo")
    assert succeeded("validate", file, *changed) == (
        f"ok: {file}: cartpole (ppo on CartPole-v1), second (ppo on CartPole-v1)\n"
    )
    result = rltrain("validate", file, "--set", "seed=x")
    assert (result.exit_code, result.stderr.count("spec.seed: must be an integer")) == (2, 2)
    assert "--set foo: must be path=value" in refused("validate", "cartpole-impala", "--set", "foo")


def test_files_without_a_job_are_not_ok(file: Path) -> None:
    other = file.parent / "code.yaml"
    other.write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: code}\n")
    note = f"note: {other}: ConfigMap code is not an RLTrainingJob and was not checked\n"
    alone = rltrain("validate", other)
    assert (alone.exit_code, alone.stdout) == (2, note)
    assert alone.stderr == f"error: {other}: holds no RLTrainingJob: nothing was checked\n"
    assert succeeded("validate", other, file) == f"{note}ok: {file}: cartpole (impala on CartPole-v1)\n"
    assert len(succeeded("validate", other, file, "--print").split("---\n")) == 2
    both = succeeded("validate", "-", stdin=f"{file.read_text()}---\n{other.read_text()}")
    assert "ok: -: cartpole" in both


def test_crd_prints_what_is_applied_to_a_cluster() -> None:
    assert rltrain("crd").stdout == COMMITTED_CRD.read_text(encoding="utf-8")


def test_a_bad_manifest_is_refused_before_anything_is_made(file: Path, manifest: str) -> None:
    file.write_text(manifest.replace("replicas: 2", "replicas: two"))
    told = refused("run", file, "--workdir", file.parent / "run")
    assert told == f'{file}: spec.sampler.replicas: must be an integer, got "two"'
    assert not (file.parent / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            "{file} --set sampler.replica=2",
            "spec.sampler.replica: is not a known field: did you mean replicas?",
        ),
        ("{file} --seed -1", "spec.seed: must be at least 0, got -1"),
        ("{file} --set runPolicy.suspend=true", "spec.runPolicy.suspend: is true, so nothing would run"),
        ("{file} --set runPolicy.managedBy=example.com/x", "names another controller"),
        (
            "{file} --set code.configMap.name=my-code",
            "the ConfigMap my-code is not in the manifest's file: add it",
        ),
        ("{file} --workdir {here}", "holds a job.yaml of yours, which a run would replace"),
        ("{file} --resume --overwrite", "--resume and --overwrite exclude each other"),
        ("{file} --resume --workdir {here}", "holds no run to resume"),
        ("--resume --workdir {here}", "holds no run to resume"),
        ("{here} --resume", "holds no run to resume"),
        ("{here}/..", "is a folder, a file is needed"),
        ("--workdir {here}", "FILE is missing: name a manifest, or continue a run with --resume"),
        ("{file} --workdir {file}", "is a file, a folder is needed"),
    ],
)
def test_a_command_that_cannot_be_meant_is_refused(file: Path, arguments: str, sentence: str) -> None:
    told = refused("run", *(word.format(file=file, here=file.parent) for word in arguments.split()))
    assert sentence in told
    assert [path.name for path in file.parent.iterdir()] == ["job.yaml"]


@pytest.mark.parametrize(
    ("id", "sentence"),
    [
        ("Cartpole-v1", "Environment `Cartpole` doesn't exist. Did you mean: `CartPole`?"),
        ("CartPole", "An id ends with its version. Did you mean: `CartPole-v1`?"),
        ("CartPole-v7", "Environment version `v7` for environment `CartPole` doesn't exist."),
        ("ALE/Pogn-v5", "Environment `Pogn` doesn't exist in namespace ALE. Did you mean: `Pong`?"),
    ],
)
def test_an_environment_that_does_not_exist_is_an_error(file: Path, id: str, sentence: str) -> None:
    file.write_text(file.read_text().replace("CartPole-v1", id))
    told = refused("validate", file)
    assert told.startswith(f"{file}: spec.environment.id: there is no environment {id!r}: {sentence}")


@pytest.mark.parametrize(
    ("id", "sentence"),
    [
        ("highway-v0", "there is no environment 'highway-v0': Environment `highway` doesn't exist."),
        (
            "maze.env:Maze-v0",
            "module maze.env is neither installed here nor beside the manifest: maze.env:Maze-v0",
        ),
    ],
)
def test_an_environment_that_may_be_elsewhere_is_a_warning(file: Path, id: str, sentence: str) -> None:
    file.write_text(file.read_text().replace("CartPole-v1", f"'{id}'"))
    ok, warning = succeeded("validate", file).splitlines()
    assert ok == f"ok: {file}: cartpole (impala on {id})"
    assert warning.startswith(f"warning: {file}: spec.environment.id: {sentence}")


def test_an_environment_beside_the_manifest_is_found_and_not_imported(file: Path) -> None:
    (file.parent / "maze.py").write_text("raise SystemExit")
    file.write_text(file.read_text().replace("CartPole-v1", "'maze:Maze-v0'"))
    assert succeeded("validate", file) == f"ok: {file}: cartpole (impala on maze:Maze-v0)\n"


@pytest.mark.parametrize(
    ("id", "package"),
    [
        ("MiniGrid-Nowhere-v0", "minigrid"),
        ("HalfCheetah-v5", "mujoco"),
        ("LunarLander-v3", "Box2D"),
    ],
)
def test_an_environment_without_its_package_is_a_warning(
    file: Path, monkeypatch: pytest.MonkeyPatch, id: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    file.write_text(file.read_text().replace("CartPole-v1", id))
    sentence = (
        f"spec.environment.id: {id!r} needs the package {package}, which is not installed: pip install "
    )
    _, warning = succeeded("validate", file).splitlines()
    assert warning.startswith(f"warning: {file}: {sentence}")


def test_a_run_without_the_module_of_its_environment_starts_nothing(file: Path) -> None:
    file.write_text(file.read_text().replace("CartPole-v1", "'maze.env:Maze-v0'"))
    assert refused("run", file, "--workdir", file.parent / "run") == (
        "spec.environment.id: module maze.env is neither installed here nor beside the manifest: put its file "
        "there, or install its package"
    )
    assert not (file.parent / "run").exists()


def test_a_folder_stands_for_its_job_yaml(file: Path) -> None:
    assert succeeded("validate", file.parent) == f"ok: {file.parent}: cartpole (impala on CartPole-v1)\n"
    told = refused("run", file.parent, "--set", "sampler.replicas=0")
    assert told == f"{file}: spec.sampler.replicas: must be at least 1, got 0"
    assert "File name too long" in refused("validate", "a" * 300)


@pytest.fixture
def run(file: Path) -> Path:
    """The folder of a run of `file` that has just started."""
    folder = file.parent / "run"
    folder.mkdir()
    load(str(file)).save(folder / "job.yaml")
    return folder


def test_a_run_whose_manifest_is_gone_asks_for_it(tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "step-000000031964").mkdir(parents=True)
    assert refused("run", tmp_path, "--resume") == (
        f"--workdir {tmp_path}: its job.yaml is gone: name the manifest: "
        f"rltrain run FILE --workdir {tmp_path} --resume"
    )


def test_a_runs_folder_is_neither_a_manifest_nor_replaced(file: Path, run: Path) -> None:
    assert refused("run", run) == f"{run}: is the folder of a run: to continue this run add --resume"
    assert "holds a run already: continue it with --resume, replace" in refused("run", file, "--workdir", run)
    assert [path.name for path in run.iterdir()] == ["job.yaml"]


@pytest.mark.parametrize("arguments", ["{run}", "{file} --workdir {run}", "{run} --set seed=7"])
def test_a_run_that_has_succeeded_does_not_go_on(file: Path, run: Path, arguments: str) -> None:
    status = Status(phase="Succeeded", message="stop.environmentSteps is met")
    job = load(str(file)).job.model_copy(update={"status": status})
    (run / "status.json").write_text(json.dumps(job.to_dict()))
    before = (run / "job.yaml").read_text()
    assert refused("run", "--resume", *arguments.format(file=file, run=run).split()) == (
        "this run has succeeded already (stop.environmentSteps is met); "
        "to continue training, change the rule: --set stop.environmentSteps=..."
    )
    assert (run / "job.yaml").read_text() == before


def test_a_run_is_not_resumed_with_another_algorithm(file: Path, run: Path, manifest: str) -> None:
    (run / "status.json").write_text(json.dumps(load(str(file)).job.to_dict()))
    before = (run / "job.yaml").read_text()
    file.write_text(manifest.replace("impala: {}", "ppo: {}"))
    told = refused("run", file, "--workdir", run, "--resume")
    assert "/run was started with impala, and ppo cannot use its checkpoints: choose another" in told
    assert (run / "job.yaml").read_text() == before


def test_a_run_on_a_full_disk_is_refused_in_a_sentence(file: Path, small_disk: Path) -> None:
    folder = small_disk / "run"
    folder.mkdir()
    with (small_disk / "filler").open("wb", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(b"x" * 4096)
    told = refused("run", file, "--workdir", folder)
    assert told == f"--workdir {folder}: cannot be written: No space left on device"
    assert not (folder / "job.yaml").exists()


def test_a_folder_whose_path_is_no_text_is_refused(file: Path, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"\xff")
    told = f"{tmp_path}/?: its path is not UTF-8: name another"
    for more in ((), ("--seeds", "2")):
        assert refused("run", file, "--workdir", folder, *more) == f"--workdir {told}"
    assert not folder.exists()
    folder.mkdir()
    JobFile(load_manifest(file)).save(folder / "job.yaml")
    assert refused("run", file, "--workdir", folder, "--resume") == f"--workdir {told}"
    assert refused("report", folder) == told


def test_a_full_disk_below_the_output_is_told_in_a_sentence() -> None:
    program = "from rltraining.cli import app; app(['crd'])"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", program], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (2, "error: the output: No space left on device\n")
