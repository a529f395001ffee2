"""What can be told of the images without building them; the tests on a cluster run them."""

from __future__ import annotations

import re
from importlib.metadata import requires
from importlib.util import find_spec

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.cluster.build_context import ROOT, admitted, copied
from tests.unit.images.dockerfiles import FILES, default, folder, instructions, pins, project, stage

ROOMS = pytest.mark.parametrize("room", FILES)

NEVER = {
    "operator": {"torch", "numpy", "gymnasium", "tensorboard", "rltraining-trainer", "rltraining"},
    "trainer": {"kopf", "kubernetes", "aiohttp", "rltraining-operator", "rltraining"},
}


def _needs(room: str) -> set[str]:
    """Every distribution in the image, as the installed ones declare their dependencies; ours by pyproject.toml."""
    ours = {project(name)["project"]["name"]: name for name in ("crds", "operator", "trainer_image")}
    found, ahead = set[str](), [Requirement(project(folder(room))["project"]["name"])]
    while ahead:
        need = ahead.pop()
        name = canonicalize_name(need.name)
        key = f"{name}[{','.join(sorted(need.extras))}]"
        if key in found:
            continue
        found |= {key, name}
        declared = project(ours[name])["project"]["dependencies"] if name in ours else requires(name) or []
        for line in declared:
            other = Requirement(line)
            if other.marker is None or any(
                other.marker.evaluate({"extra": extra}) for extra in need.extras | {""}
            ):
                ahead.append(other)
    return {name for name in found if "[" not in name}


@ROOMS
def test_an_image_holds_nothing_of_the_other_room(room: str) -> None:
    intruders = NEVER[room] & _needs(room)
    assert not intruders, f"the {room}'s image would hold {', '.join(sorted(intruders))}"


@ROOMS
def test_all_that_an_image_holds_is_pinned(room: str) -> None:
    unpinned = {name for name in _needs(room) if not name.startswith("rltraining")} - pins().keys()
    assert not unpinned, f"constraints.txt does not pin {', '.join(sorted(unpinned))}: make constraints"


def test_torch_has_one_version() -> None:
    declared = [Requirement(line) for line in project("trainer_image")["project"]["dependencies"]]
    [torch] = [need for need in declared if need.name == "torch"]
    assert str(torch.specifier) == f"=={pins()['torch']}"


@ROOMS
def test_the_tools_of_a_build_are_those_of_the_project(room: str) -> None:
    [backend] = project(folder(room))["build-system"]["requires"]
    assert default(room, "UV_VERSION") == pins()["uv"]
    assert re.findall(r"hatchling==[\d.]+", stage(room, "tools")[2].rest) == [backend]


@ROOMS
def test_the_label_s_version_is_the_distribution_s(room: str) -> None:
    assert default(room, "VERSION") == project(folder(room))["project"]["version"]


@ROOMS
def test_the_program_is_one_that_the_distribution_installs(room: str) -> None:
    [program] = [item.rest for item in stage(room, "image") if item.word == "ENTRYPOINT"]
    name = f"rltraining-{room}"
    assert program == f'["{name}"]'
    module, _, function = project(folder(room))["project"]["scripts"][name].partition(":")
    spec = find_spec(module)
    assert spec is not None, f"there is no module {module}"
    assert spec.origin is not None
    assert f"def {function}(" in (ROOT / spec.origin).read_text()


@ROOMS
def test_nobody_is_root(room: str) -> None:
    users = [item.rest for item in instructions(room) if item.word == "USER"]
    assert users == ["65532:65532"], "a number, because runAsNonRoot cannot judge a name"


@ROOMS
def test_every_builder_understands_it(room: str) -> None:
    """Docker with BuildKit and buildah from 1.28 on, as Debian 12 has it."""
    assert not [item for item in instructions(room) if "<<" in item.rest], "a heredoc"
    mounts = re.findall(r"--mount=(\S+)", " ".join(item.rest for item in instructions(room)))
    assert set(mounts) == {"type=cache,id=uv,target=/var/cache/uv"}, (
        "buildah 1.28 has no others that are safe"
    )


@ROOMS
def test_our_code_comes_last_as_one_layer(room: str) -> None:
    steps = [item for item in stage(room, "image") if item.word in {"RUN", "COPY", "ADD"}]
    assert (steps[-1].word, steps[-1].rest) == ("COPY", "--from=ours /ours/ /opt/rltraining/")
    below = [item.rest for item in steps[:-1] if item.word != "RUN"]
    assert all(rest.startswith("--from=pins /pins/") for rest in below), (
        f"our own code renews layers: {below}"
    )


def test_torch_lies_alone_below_all_else() -> None:
    pinned, torch, *above = [item for item in stage("trainer", "image") if item.word in {"RUN", "COPY"}]
    assert pinned.rest == "--from=pins /pins/torch.txt /opt/rltraining/"
    assert "uv pip install -q --compile-bytecode torch" in torch.rest
    assert not [item for item in above if "torch" in item.rest.split("pip install")[-1].split("&&")[0]]


def test_what_the_images_share_is_the_same() -> None:
    for name in ("base", "tools"):
        assert stage("operator", name) == stage("trainer", name), f"the stages {name} differ"


@ROOMS
def test_the_context_has_what_is_copied(room: str) -> None:
    files = admitted()
    for source in copied(ROOT / FILES[room]):
        assert any(f"{name}/".startswith(f"{source}/") for name in files), f".dockerignore keeps {source} out"


def test_the_context_is_small() -> None:
    files = admitted()
    assert sum((ROOT / name).stat().st_size for name in files) < 4_000_000
    strangers = [name for name in files if name.startswith(("tests/", "docs/", ".")) or name.endswith(".pyc")]
    assert not strangers
