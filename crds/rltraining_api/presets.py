"""Presets: fills in the defaults that depend on the task.

Each trainer process calls `resolve` at its start, once the spaces of the environment are known, and
works with a complete job from then on. `rltrain explain` calls it to show the defaults.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

from rltraining_api.base import ApiModel, OneOf, by_task
from rltraining_api.fields import Preset
from rltraining_api.introspect import Path, dotted, field_at, model_at
from rltraining_api.job import RLTrainingJob
from rltraining_api.preset_values import PRESET_VALUES

_OF_THE_SPEC = ("network", "environment")
"""Paths that begin with these are relative to the spec, all others to the algorithm's settings."""
_SHORTEST_ROLLOUT = 16
"""The smallest `rolloutLength` that replaces a preset's."""


class Resolved(NamedTuple):
    """A job with the defaults of a preset."""

    job: RLTrainingJob
    """Each field is set."""
    sources: dict[str, str]
    """Sources of the preset's values by path, such as `spec.algorithm.ppo.epochs`."""


def resolve(job: RLTrainingJob, preset: Preset) -> Resolved:
    """Returns the job with the preset's values in all task-dependent fields that the user has not
    set, also within `network` and `optimizer`, unless the user has chosen another one there.

    A null counts as set. A preset's value that conflicts with the user's settings is adjusted (see
    `_fit`).

    Raises:
        ValidationError: The user's settings and the preset's break a rule together.
    """
    data = job.to_dict()
    spec, algorithm = data["spec"], job.spec.algorithm.name
    sources: dict[str, str] = {}

    # Fill in the preset's values where the user has set none.
    for path, (value, source) in PRESET_VALUES[algorithm][preset].items():
        steps = path.split(".")
        if steps[0] not in _OF_THE_SPEC:
            steps = ["algorithm", algorithm, *steps]
        owner = spec
        for step in steps[:-1]:
            owner = owner[step]
        for filled in _fill(owner, ("spec", *steps), value):
            sources[dotted(filled)] = source

    # Adjust the preset's values to the user's.
    spec["preset"] = preset
    _fit(spec, algorithm, sources)
    # A network that is not the preset's has the defaults of its model.
    network = RLTrainingJob.model_validate(data).spec.network
    dumped = network.model_dump(mode="json", by_alias=True)
    for path in unresolved(network, "network"):
        _, choice, key = path.split(".")
        spec["network"][choice][key] = dumped[choice][key]
    return Resolved(RLTrainingJob.model_validate(data), sources)


def _fill(owner: dict[str, Any], path: Path, value: Any) -> Iterator[Path]:
    """Sets the last key of a path where the user has not, also within an object, and yields the paths
    that it has set. Choices other than the user's stay unset."""
    key = str(path[-1])
    if key not in owner:
        owner[key] = copy.deepcopy(value)
        yield path
        return
    if not (isinstance(value, dict) and isinstance(owner[key], dict)):
        return
    model = model_at(RLTrainingJob, path)
    choices = set(model.choice_keys()) if model is not None and issubclass(model, OneOf) else set()
    is_chosen = bool(choices & owner[key].keys())
    for inner, its_value in value.items():
        is_free = not (is_chosen and inner in choices) and _has_no_default((*path, inner))
        if inner in owner[key] or is_free:
            yield from _fill(owner[key], (*path, inner), its_value)


def _has_no_default(path: Path) -> bool:
    """Returns whether an API server leaves a field unset if the user does."""
    field = field_at(RLTrainingJob, path)
    return field is not None and (by_task(field) or field.default is None)


def unresolved(model: ApiModel, path: str = "spec") -> Iterator[str]:
    """Yields the paths of unset task-dependent fields below `path`."""
    for name, field in type(model).model_fields.items():
        value, here = getattr(model, name), f"{path}.{field.alias or name}"
        if by_task(field) and not model.has_set(name):
            yield here
        elif isinstance(value, ApiModel):
            yield from unresolved(value, here)


def _fit(spec: dict[str, Any], algorithm: str, sources: dict[str, str]) -> None:
    """Adjusts the preset's values that would break a rule together with the user's."""
    settings = spec["algorithm"][algorithm]
    prefix = f"spec.algorithm.{algorithm}"

    def adjust(key: str, value: Any, cause: str) -> None:
        """Replaces a value if the preset has set it, and adds the cause to its source."""
        *owners, last = key.split(".")
        owner = settings
        for step in owners:
            owner = owner[step]
        if f"{prefix}.{key}" in sources and owner[last] != value:
            owner[last] = value
            sources[f"{prefix}.{key}"] += f", but {cause}"

    # A schedule needs an end.
    if "environmentSteps" not in spec["stop"]:
        for key in settings:
            if key.endswith("Schedule"):
                adjust(key, "Constant", "stop.environmentSteps is not set")
    # Split the preset's rollout of one environment into shorter ones of the user's environments.
    if algorithm == "ppo" and PRESET_VALUES[algorithm][spec["preset"]]["environment.numEnvs"].value == 1:
        environments = spec["environment"]["numEnvs"]
        length = max(_SHORTEST_ROLLOUT, settings["rolloutLength"] // environments)
        adjust("rolloutLength", length, f"environment.numEnvs is {environments}")
    # n-step returns exclude λ-returns.
    if "nStep" in settings and "gaeLambda" in settings:
        adjust("gaeLambda", 1.0, "nStep is set")
    # minibatches excludes minibatchSize.
    if "minibatches" in settings and f"{prefix}.minibatchSize" in sources:
        del settings["minibatchSize"], sources[f"{prefix}.minibatchSize"]
    # batchSize <= replay.minimum <= replay.capacity.
    if (replay := settings.get("replay")) is not None:
        least = max(replay["minimum"], settings["batchSize"])
        adjust("replay.minimum", least, "batchSize is larger")
        adjust("replay.capacity", max(replay["capacity"], replay["minimum"]), "replay.minimum is larger")
        most = min(replay["minimum"], replay["capacity"])
        adjust("replay.minimum", most, "replay.capacity is smaller")
        adjust("batchSize", min(settings["batchSize"], replay["minimum"]), "replay.minimum is smaller")
