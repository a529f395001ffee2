"""Formats the job as YAML, with the defaults marked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import ValidationError
from rltraining_api.job import JobSpec, RLTrainingJob
from rltraining_api.presets import resolve

INDENT = "  "


@dataclass(frozen=True)
class YamlLine:
    """A line, and whether it only repeats a default."""

    text: str
    is_default: bool


def lines(job: RLTrainingJob) -> tuple[YamlLine, ...]:
    """Returns the spec with all defaults, including defaults of the reported preset."""
    changed = job.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return (YamlLine("spec:", False), *_mapping(_complete(job).to_dict(), changed, INDENT))


def _complete(job: RLTrainingJob) -> JobSpec:
    if job.status.preset is None:
        return job.spec
    try:
        return resolve(job, job.status.preset).job.spec
    except ValidationError:  # the job ran with presets of another version
        return job.spec


def _mapping(value: Mapping[str, Any], changed: Any, indent: str) -> Iterator[YamlLine]:
    known = changed if isinstance(changed, Mapping) else {}
    for key, item in value.items():
        is_default = key not in known
        if isinstance(item, Mapping) and item:
            yield YamlLine(f"{indent}{yaml_text({key: None}).removesuffix(' null')}", is_default)
            yield from _mapping(item, known.get(key), indent + INDENT)
        else:
            for text in yaml_text({key: item}).splitlines():
                yield YamlLine(f"{indent}{text}", is_default)


def yaml_text(value: Any) -> str:
    """Formats a value as YAML without a final line break."""
    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100)
    return text.rstrip("\n")
