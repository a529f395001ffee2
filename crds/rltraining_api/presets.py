"""Presets: from a job as its user wrote it to a job whose defaults fit the task.

The trainer calls `resolve` once at the start of each process, when it knows the spaces of the environment; the command line
does to explain a manifest. Everything after that sees a complete job.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from rltraining_api.base import ApiModel, by_task
from rltraining_api.fields import Preset
from rltraining_api.introspect import dotted
from rltraining_api.job import RLTrainingJob
from rltraining_api.preset_values import PRESET_VALUES

_OF_THE_SPEC = ("network", "environment")
"""Paths that begin with these are of the spec, all others of the algorithm."""


class Resolved(NamedTuple):
    """A job with the defaults of a preset."""

    job: RLTrainingJob
    """Each field is set."""
    sources: dict[str, str]
    """Of what the preset gave, by path: `spec.algorithm.ppo.epochs` to `CleanRL ppo.py`."""


def resolve(job: RLTrainingJob, preset: Preset) -> Resolved:
    """Returns the job with the preset's value in each field that depends on the task and that its user has not set.

    A null is a user's choice, too. A value that does not go with what the user has set gives way: see `_fit`.

    Raises:
        ValidationError: the user's settings break a rule together with the preset's.
    """
    data = job.to_dict()
    spec, algorithm = data["spec"], job.spec.algorithm.name
    sources: dict[str, str] = {}

    # Give each field that is not set the preset's value.
    for path, (value, source) in PRESET_VALUES[algorithm][preset].items():
        steps = path.split(".")
        if steps[0] not in _OF_THE_SPEC:
            steps = ["algorithm", algorithm, *steps]
        owner = spec
        for step in steps[:-1]:
            owner = owner[step]
        if steps[-1] not in owner:
            owner[steps[-1]] = value
            sources[dotted(["spec", *steps])] = source

    # Let the preset's values give way where the user's do not go with them.
    _fit(spec, algorithm, sources)
    spec["preset"] = preset
    return Resolved(RLTrainingJob.model_validate(data), sources)


def unresolved(model: ApiModel, path: str = "spec") -> Iterator[str]:
    """Yields the paths of the fields below `path` that depend on the task and are not set."""
    for name, field in type(model).model_fields.items():
        value, here = getattr(model, name), f"{path}.{field.alias or name}"
        if by_task(field) and not model.has_set(name):
            yield here
        elif isinstance(value, ApiModel):
            yield from unresolved(value, here)


def _fit(spec: dict[str, Any], algorithm: str, sources: dict[str, str]) -> None:
    """Changes the preset's values that break a rule with the user's."""
    settings = spec["algorithm"][algorithm]
    prefix = f"spec.algorithm.{algorithm}"

    def give_way(key: str, value: Any, cause: str) -> None:
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
                give_way(key, "Constant", "stop.environmentSteps is not set")
    # n-step returns are another way to advantages than λ.
    if "nStep" in settings and "gaeLambda" in settings:
        give_way("gaeLambda", 1.0, "nStep is set")
    # Minibatches are counted or measured.
    if "minibatches" in settings and f"{prefix}.minibatchSize" in sources:
        del settings["minibatchSize"], sources[f"{prefix}.minibatchSize"]
    # A batch is drawn from a memory that has begun to fill, whose minimum fits into it.
    if (replay := settings.get("replay")) is not None:
        give_way("replay.minimum", max(replay["minimum"], settings["batchSize"]), "batchSize is larger")
        give_way("replay.capacity", max(replay["capacity"], replay["minimum"]), "replay.minimum is larger")
        give_way("replay.minimum", min(replay["minimum"], replay["capacity"]), "replay.capacity is smaller")
        give_way("batchSize", min(settings["batchSize"], replay["minimum"]), "replay.minimum is smaller")
