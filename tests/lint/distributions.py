"""The four distributions have one version, and require each other in exactly that version."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from itertools import chain

from packaging.requirements import Requirement

from tests.docs_pages import ROOT
from tests.lint.problem import Problem, line_of

SOURCE = "crds/pyproject.toml"
FILES = (SOURCE, "operator/pyproject.toml", "trainer_image/pyproject.toml", "client/pyproject.toml")
REMEDY = "make version VERSION=... changes all of them"


def differing_versions(texts: Mapping[str, str] | None = None) -> Iterator[Problem]:
    """Finds versions of distributions, and requirements of them, that differ from the version in `SOURCE`."""
    texts = texts or {path: (ROOT / path).read_text() for path in FILES}
    projects = {path: tomllib.loads(text)["project"] for path, text in texts.items()}
    version = projects[SOURCE]["version"]
    for path, project in projects.items():
        if project["version"] != version:
            line = line_of(texts[path], f'version = "{project["version"]}"')
            yield Problem(path, line, f"the version is {version} in {SOURCE}: {REMEDY}")
        extras = chain.from_iterable(project.get("optional-dependencies", {}).values())
        for written in [*project["dependencies"], *extras]:
            need = Requirement(written)
            # A requirement with an extra complements a requirement without it, which has the version.
            if (
                need.name.startswith("rltraining")
                and not need.extras
                and str(need.specifier) != f"=={version}"
            ):
                yield Problem(
                    path, line_of(texts[path], f'"{written}"'), f"this should be =={version}: {REMEDY}"
                )


CHECKS = (differing_versions,)
