"""Implements `rltrain init`, which creates a project from the templates in `project/`."""

from __future__ import annotations

import importlib.util
import re
import shlex
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from rltraining_api import patterns
from rltraining_api.names import NAME_MAX

from rltraining.errors import UsageError
from rltraining.printable import say


@dataclass(frozen=True)
class Template:
    """A file of the project."""

    source: str
    """File name in `project/`."""
    path: str
    """Path in the project. `{module}` is replaced."""
    about: str


TEMPLATES = (
    Template("job.yaml.j2", "job.yaml", "the job"),
    Template("environment.py.j2", "{module}_env.py", "its environment, after gymnasium's rules"),
    Template("network.py.j2", "{module}_net.py", "its network, in torch"),
    Template("test.py.j2", "test_{module}.py", "tests of the three, for pytest"),
    Template("Dockerfile.j2", "Dockerfile", "an image with the code in it, for a cluster"),
    Template("README.md.j2", "README.md", "all commands"),
    Template("gitignore.j2", ".gitignore", "keeps runs out of git"),
)


def init(folder: Path, name: str | None) -> None:
    """Writes the project and prints the next steps. Raises UsageError before anything is
    written."""
    _check_empty(folder)
    job = _checked(name or folder.resolve().name, "--name" if name else "DIR")
    module = job.replace("-", "_")
    written = {template.path.format(module=module): template for template in TEMPLATES}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, template in written.items():
            (folder / path).write_text(_filled(template, name=job, module=module), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written: {error.strerror}") from None
    width = max(map(len, written))
    for path, template in written.items():
        say(f"{folder / path}{' ' * (width - len(path))}  {template.about}")
    say("\nnext:")
    if folder.resolve() != Path.cwd():
        say(f"  cd {shlex.quote(str(folder))}")
    say("  rltrain run job.yaml\n  pip install pytest && pytest")


def _filled(template: Template, **values: str) -> str:
    from jinja2 import Environment, StrictUndefined

    text = (files("rltraining") / "project" / template.source).read_text(encoding="utf-8")
    # The files are code, not markup: there is nothing to escape.
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)  # noqa: S701
    return environment.from_string(text).render(**values, version=version("rltraining"))


def _check_empty(folder: Path) -> None:
    """Raises UsageError unless the folder is empty, except for `.git`."""
    if folder.is_dir() and all(path.name == ".git" for path in folder.iterdir()):
        return
    if folder.exists():
        raise UsageError(f"{folder}: is not an empty folder: name a new one")


def _checked(name: str, origin: str) -> str:
    """Checks the name of the job, which with `_env` and `_net` also names modules that no installed
    module may hide. Raises UsageError."""
    instead = "give another one with --name"
    if not re.fullmatch(patterns.LABEL, name) or len(name) > NAME_MAX:
        meaning = f"{patterns.MEANINGS[patterns.LABEL]}, at most {NAME_MAX} characters"
        raise UsageError(f"{origin} {name}: as the name of a job it {meaning}: {instead}")
    for module in (f"{name}_env".replace("-", "_"), f"{name}_net".replace("-", "_")):
        if importlib.util.find_spec(module) is not None:
            raise UsageError(
                f"{origin} {name}: a module {module} is installed and would hide yours: {instead}"
            )
    return name
