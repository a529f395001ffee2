"""Whoever types the pages' commands for a cluster one after the other finds each job there, and each new name free."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import yaml
from docs_pages import ROOT, Command, commands, site

NAMES = re.compile(r"^(?:rlj|rltrainingjobs)/")
SHOWN = {"survivor", "no-image", "runs/first", "runs/quickstart"}
"""Of examples with their output, and folders."""


def in_the_order_of_reading() -> list[Command]:
    """README's, then those of the site from its first page to its last."""
    return [command for command in commands() if command.page in ("README.md", *site())]


def follow(found: list[Command]) -> Iterator[str]:
    """What would be refused, or would find another's job."""
    jobs: set[str] = set()
    for command in found:
        for words in command.simple():
            if words[0] == "kind":
                jobs = set()  # another cluster
            for name in made(words):
                if name in jobs:
                    yield f"{command}: the job {name} is there already"
                jobs.add(name)
            for name in named(words):
                if name not in jobs | SHOWN and name.islower():
                    yield f"{command}: there is no job {name}"
                jobs -= {name} if "delete" in words else set()


def made(words: list[str]) -> list[str]:
    """The jobs that a command makes; of several only their common name."""
    if words[:2] == ["rltrain", "submit"]:
        return [option(words, "--name") or of_manifest(words[2])] if "--generate-name" not in words else []
    if words[:3] == ["kubectl", "apply", "-f"] and words[3].startswith("examples/"):
        return [of_manifest(words[3])]
    return []


def named(words: list[str]) -> list[str]:
    """The jobs that must be there for a command."""
    if words[:2] == ["kubectl", "rltrain"]:
        words = words[1:]
    arguments = [word for word in words[2:] if not word.startswith("-")]
    if words[0] == "rltrain" and words[1] in ("watch", "report", "logs", "scale", "suspend", "resume"):
        return arguments[:1]
    if words[:2] in (["rltrain", "delete"], ["rltrain", "compare"]):
        return [option(words, "--sweep") or arguments[0]] if "runs/" not in words[2] else []
    if words[0] == "kubectl" and words[1] in ("get", "describe", "scale", "delete"):
        if arguments and arguments[0] in ("rlj", "rltrainingjobs"):
            return [word for word in arguments[1:] if word not in ("wide", "yaml")]
        return [NAMES.sub("", word) for word in arguments if NAMES.match(word)]
    return []


def option(words: list[str], name: str) -> str:
    return words[words.index(name) + 1] if name in words else ""


def of_manifest(path: str) -> str:
    if path == "maze/job.yaml":  # what `rltrain init maze` makes
        return "maze"
    name: str = yaml.safe_load((ROOT / path).read_text())["metadata"]["name"]
    return name


def test_the_pages_name_jobs_that_are_there_and_new_ones_otherwise() -> None:
    assert list(follow(in_the_order_of_reading())) == []


def typed(*texts: str) -> list[Command]:
    return [Command("README.md", number, text) for number, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["kubectl apply -f examples/cartpole-impala.yaml"] * 2, "the job cartpole is there already"),
        (["rltrain submit examples/cartpole-a3c.yaml --name long"] * 2, "the job long is there already"),
        (["rltrain submit maze/job.yaml", "rltrain watch cartpole"], "there is no job cartpole"),
        (["kubectl scale rlj/long --replicas 2"], "there is no job long"),
        (
            [
                "kubectl apply -f examples/cartpole-impala.yaml",
                "kubectl delete rlj cartpole",
                "rltrain watch cartpole",
            ],
            "there is no job cartpole",
        ),
    ],
)
def test_it_would_be_noticed(texts: list[str], said: str) -> None:
    assert [sentence.partition(": ")[2] for sentence in follow(typed(*texts))] == [said]
