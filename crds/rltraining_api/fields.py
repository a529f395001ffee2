"""Types of the fields of the contract. Every number, string and list has bounds.

The CRD contains these bounds too, because the API server needs them to estimate the cost of rules.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field

from rltraining_api import patterns

COUNT_MAX = 2**31 - 1
STEPS_MAX = 2**53
"""The largest integer that every JSON reader represents exactly."""

Count = Annotated[int, Field(ge=1, le=COUNT_MAX)]
CountOrZero = Annotated[int, Field(ge=0, le=COUNT_MAX)]
Steps = Annotated[int, Field(ge=1, le=STEPS_MAX)]
StepsOrZero = Annotated[int, Field(ge=0, le=STEPS_MAX)]

Fraction = Annotated[float, Field(ge=0, le=1)]
FractionBelowOne = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0, le=1e9)]
NotNegative = Annotated[float, Field(ge=0, le=1e9)]
LearningRate = Annotated[float, Field(gt=0, le=10)]
Return = Annotated[float, Field(ge=-1e15, le=1e15)]

Text = Annotated[str, Field(max_length=32_768)]
"""A message for people."""
ShortText = Annotated[str, Field(max_length=253)]
Reason = Annotated[str, Field(max_length=1024, pattern=patterns.REASON)]
"""CamelCase, for machines (as in `metav1.Condition`)."""
ObjectName = Annotated[str, Field(max_length=253, pattern=patterns.OBJECT_NAME)]
"""The name of another Kubernetes object: RFC 1123 subdomain."""
Uri = Annotated[str, Field(max_length=2048, pattern=patterns.URI)]
"""As fsspec reads it: `s3://bucket/path`, `gs://bucket/path`, `file:///path`."""
Module = Annotated[str, Field(max_length=253, pattern=patterns.MODULE)]
"""A Python module: `module` or `package.module`."""
StoredUri = Annotated[str, Field(max_length=4096)]
"""The URI of a written file or directory: a `checkpoint.uri` with a suffix."""
EntryPoint = Annotated[str, Field(max_length=253, pattern=patterns.ENTRY_POINT)]
"""User code: `module:name` or `package.module:name`."""

FreeForm = Annotated[dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})]
"""An object that is stored unchanged, because its schema is defined elsewhere."""

ATOMIC_LIST = {"x-kubernetes-list-type": "atomic"}
"""A list that is replaced as a unit when it is applied."""
LayerSizes = Annotated[
    tuple[Annotated[int, Field(ge=1, le=65_536)], ...],
    Field(min_length=1, max_length=32, json_schema_extra=ATOMIC_LIST),
]
Schedule = Literal["Constant", "Linear"]
"""Linear: falls to 0 over `stop.environmentSteps`."""
LossReduction = Literal["Sum", "Mean"]
Preset = Literal["Atari", "MuJoCo", "Classic"]
"""The kind of task that sets a job's defaults: images, continuous control, or everything else."""
PRESETS: tuple[Preset, ...] = get_args(Preset)


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


Measured = Annotated[float | None, BeforeValidator(_finite)]
"""A measurement. NaN and infinity, which JSON does not support, become None."""
