"""Implements `rltrain explain`."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from rltraining_api import presets
from rltraining_api.base import ApiModel
from rltraining_api.explain import explain as sentences
from rltraining_api.fields import Preset
from rltraining_api.introspect import field_at
from rltraining_api.job import JobSpec, RLTrainingJob
from rltraining_api.network import Gaussian

from rltraining import jobfile
from rltraining.errors import ClientError, UsageError
from rltraining.local import REMEDY
from rltraining.printable import say

Spaces = tuple[Any, Any]
"""The observation space and the action space. The trainer, which creates them, may not be
installed."""
ACTOR_CRITICS = ("a3c", "a2c", "ppo", "impala")
"""The algorithms to which `network.valueNetwork` and `network.gaussian` apply."""
MEASURED = "measured"
"""The source of values from the project's own runs."""
SOURCE = re.compile(r"\(([^()]+)\)\.?\s*$")
"""Matches the source of a default in parentheses at the end of a field's description."""


def explain(file: str, overrides: Sequence[str], preset: Preset | None) -> None:
    """Prints each value of the job's spec with its source. Raises ClientError."""
    # Read the manifest, and choose the preset.
    loaded = jobfile.load(file, overrides)
    _check_wrappers(loaded.job.spec)
    spaces = None
    chosen = preset or loaded.job.spec.preset
    if chosen is None:
        chosen, spaces = _preset_of(loaded)
    # Fill in the defaults, and check the network.
    try:
        job, sources = presets.resolve(loaded.job, chosen)
    except ValidationError as error:
        raise UsageError(*sentences(error, RLTrainingJob)) from None
    if spaces is not None:
        _check_network(job.spec, spaces)
    # Print the values.
    chooser = (
        "--preset" if preset else "your manifest" if loaded.job.spec.preset else "the environment's spaces"
    )
    lines = [
        ("preset", chosen, chooser),
        *_lines(loaded.job.spec, job.spec, sources, chosen, spaces),
    ]
    widths = [max(len(line[column]) for line in lines) for column in (0, 1)]
    for path, value, source in lines:
        say(f"{path:{widths[0]}}  {value:{widths[1]}}  {source}")


def _preset_of(loaded: jobfile.JobFile) -> tuple[Preset, Spaces]:
    """Makes the environment. Returns the preset that fits its spaces, and the spaces."""
    environment = loaded.job.spec.environment
    try:
        from rltraining_trainer.environments import make_spaces
        from rltraining_trainer.environments.extras import NotInstalled
        from rltraining_trainer.errors import TrainerError, UserCodeError
        from rltraining_trainer.roles.resolve import preset_of
    except ModuleNotFoundError as error:
        raise UsageError(
            f"the defaults depend on the spaces of {environment.id}, and the trainer that makes it is not installed "
            f"({error.name}): name a preset with --preset, or {REMEDY}"
        ) from None
    if loaded.code_folder is not None:
        sys.path.append(str(loaded.code_folder))
    try:
        spaces = make_spaces(environment)
        return preset_of(*spaces), spaces
    except (NotInstalled, UserCodeError) as error:
        raise ClientError(_with_hint(str(error))) from None
    except TrainerError as error:
        raise ClientError(str(error)) from None


def _with_hint(problem: str) -> str:
    """Adds to the first line of an error that a preset replaces the environment, which cannot be made here."""
    sentence, *trace = problem.split("\n")
    return "\n".join([f"{sentence}; or name a preset with --preset", *trace])


def _check_wrappers(spec: JobSpec) -> None:
    """Rejects wrappers by their names, as a run does. Checks nothing where the trainer is not installed."""
    if not spec.environment.wrappers:
        return
    try:
        from rltraining_trainer.environments.wrappers import check_names
        from rltraining_trainer.errors import TrainerError
    except ModuleNotFoundError:
        return
    try:
        check_names(spec.environment.wrappers)
    except TrainerError as error:
        raise ClientError(str(error)) from None


def _has_box(preset: Preset, spaces: Spaces | None) -> bool:
    """Returns whether actions have a Box. Without the spaces, that of the preset's tasks."""
    if spaces is None:
        return preset == "MuJoCo"
    from rltraining_trainer.roles.resolve import has_box

    return has_box(spaces[1])


def _check_network(spec: JobSpec, spaces: Spaces) -> None:
    """Builds the network of a built-in algorithm. Fails as in a run if the spaces are not
    supported."""
    from rltraining_trainer.algorithms.registry import BUILT_IN, build_policy_network
    from rltraining_trainer.errors import TrainerError

    if spec.algorithm.name not in BUILT_IN:
        return
    try:
        build_policy_network(
            spec.algorithm.name,
            spec.network,
            *spaces,
            normalize=spec.environment.normalize,
            dueling=getattr(spec.algorithm.parameters, "dueling", False),
            quantiles=getattr(spec.algorithm.parameters, "quantiles", 1),
            noisy=getattr(spec.algorithm.parameters, "noisy_layers", False),
        )
    except TrainerError as error:
        raise ClientError(str(error)) from None


def _lines(
    written: JobSpec, resolved: JobSpec, sources: Mapping[str, str], preset: Preset, spaces: Spaces | None
) -> Iterator[tuple[str, str, str]]:
    """Yields the path, the value and the source of each field except `preset`."""
    stored = {path for path, _ in _leaves(resolved.to_dict(), ())}
    for path, value in _leaves(_complete(resolved, preset, spaces), ()):
        if path == ("preset",):
            continue
        if path in stored and (given := _given(sources, path)) is not None:
            source = f"preset {resolved.preset}: {given}"
        elif _is_set(written, path):
            source = "your manifest"
        else:
            source = _default_source(path)
        yield ".".join(path), _shown(value), source


def _complete(spec: JobSpec, preset: Preset, spaces: Spaces | None) -> dict[str, Any]:
    """Returns the spec as in a manifest, with the defaults that depend on other fields."""
    data = spec.to_dict()
    if spec.gradients_at is not None:
        data["algorithm"][spec.algorithm.name].setdefault("gradients", spec.gradients_at)
    if spec.algorithm.name in ACTOR_CRITICS:
        network = data["network"]
        network.setdefault("valueNetwork", "Separate" if spec.network.has_separate_value else "Shared")
        if _has_box(preset, spaces):
            network.setdefault("gaussian", Gaussian().to_dict())
    if spec.algorithm.sac is not None:
        entropy = "minus the action's dimensions" if spaces is None else -float(math.prod(spaces[1].shape))
        data["algorithm"]["sac"].setdefault("targetEntropy", entropy)
    return data


def _leaves(value: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, item in value.items():
        if isinstance(item, Mapping) and item:
            yield from _leaves(item, (*path, key))
        else:
            yield (*path, key), item


def _given(sources: Mapping[str, str], path: Sequence[str]) -> str | None:
    """Returns the preset's source of the value at a path or of an object that contains it. Names the page that describes
    the project's own measurements."""
    for length in range(len(path), 0, -1):
        if (source := sources.get(".".join(("spec", *path[:length])))) is not None:
            own = source.startswith(MEASURED)
            return source.replace(MEASURED, f"{MEASURED} (docs/defaults.md)", 1) if own else source
    return None


def _is_set(model: ApiModel, path: Sequence[str]) -> bool:
    """Returns whether the user has set the field at a path or an object that contains it."""
    value: Any = model
    for key in path:
        if not isinstance(value, ApiModel):
            break
        name = next(
            (name for name, field in type(value).model_fields.items() if (field.alias or name) == key), ""
        )
        if not value.has_set(name):
            return False
        value = getattr(value, name)
    return True


def _default_source(path: Sequence[str]) -> str:
    field = field_at(JobSpec, path)
    found = SOURCE.search(field.description or "") if field is not None else None
    return f"default: {' '.join(found[1].split())}" if found else "default"


def _shown(value: Any) -> str:
    """Formats a value on one line, as JSON unless it is a string."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
