"""The CustomResourceDefinition, made from the models.

Kubernetes wants a *structural* schema: no references, no unions, every object's properties named at one place
(KEP-2335). So the models are walked, and only the leaves are taken from pydantic's JSON schema, rewritten.
"""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any

import yaml
from pydantic.fields import FieldInfo

from rltraining_api.base import ApiModel, by_task
from rltraining_api.introspect import allows_null, child_model, fields_by_key
from rltraining_api.job import JobSpec, RLTrainingJob
from rltraining_api.names import CRD_NAME, GROUP, KIND, PLURAL, SHORT_NAME, SINGULAR, VERSION
from rltraining_api.status import Status

Schema = dict[str, Any]

FILE_NAME = f"{GROUP}_{PLURAL}.yaml"
HEADER = "# Made from the models in rltraining_api by: rltrain crd. Change those, then: make crd\n"

COLUMNS = (
    ("Phase", "string", ".status.phase", 0),
    ("Algorithm", "string", ".status.algorithm", 0),
    ("Learners", "string", ".status.learner.summary", 0),
    ("Replays", "string", ".status.replayPods.summary", 1),
    ("Samplers", "string", ".status.sampler.summary", 0),
    ("Updated", "integer", ".status.sampler.updated", 1),
    ("Steps", "integer", ".status.progress.environmentSteps", 0),
    ("Return", "number", ".status.progress.meanReturn", 0),
    ("Evaluation", "number", ".status.evaluation.last.meanReturn", 1),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Restarts", "integer", ".status.restarts", 1),
    ("Steps/s", "number", ".status.progress.stepsPerSecond", 1),
)
"""Name, type, JSONPath, and priority: 1 is shown by `kubectl get -o wide` only."""


def crd_yaml() -> str:
    """The file that users apply."""
    return HEADER + yaml.safe_dump(
        crd(), sort_keys=False, allow_unicode=True, width=110, default_flow_style=None
    )


def crd() -> dict[str, Any]:
    """The CustomResourceDefinition."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": CRD_NAME},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": SINGULAR,
                "shortNames": [SHORT_NAME],
                "categories": ["all"],
            },
            "scope": "Namespaced",
            "versions": [_version()],
        },
    }


def _version() -> dict[str, Any]:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [_column(*column) for column in COLUMNS],
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.sampler.replicas",
                "statusReplicasPath": ".status.sampler.replicas",
                "labelSelectorPath": ".status.sampler.selector",
            },
        },
        "schema": {"openAPIV3Schema": _root()},
    }


def _column(name: str, kind: str, path: str, priority: int) -> dict[str, Any]:
    column: dict[str, Any] = {"name": name, "type": kind, "jsonPath": path}
    return column | {"priority": priority} if priority else column


def _root() -> Schema:
    """Returns the schema of the object, in which `metadata` must not have a separate schema."""
    fields = fields_by_key(RLTrainingJob)
    return {
        "type": "object",
        "description": _text(RLTrainingJob.__doc__),
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": _text(fields["apiVersion"].description)},
            "kind": {"type": "string", "description": _text(fields["kind"].description)},
            "metadata": {"type": "object"},
            "spec": _object(JobSpec, defaults=True) | {"description": _text(JobSpec.__doc__)},
            "status": _object(Status, defaults=False) | {"description": _text(Status.__doc__)},
        },
        "x-kubernetes-validations": _validations(RLTrainingJob),
    }


@cache
def _schemas() -> dict[str, Schema]:
    """Returns pydantic's JSON schemas of all models below a job, by name. Asking each model would take ten times as long."""
    return dict(RLTrainingJob.model_json_schema()["$defs"])


def _object(model: type[ApiModel], *, defaults: bool) -> Schema:
    """The schema of a model. Defaults are for what users write; a status is whole as it is written."""
    # Copy the schema: YAML would replace the second use of a shared object by an alias.
    raw = deepcopy(_schemas()[model.__name__]["properties"])
    fields = fields_by_key(model)
    required = [key for key, field in fields.items() if field.is_required()]
    schema: Schema = {"type": "object"}
    if required:
        schema["required"] = required
    schema["properties"] = {
        key: _property(field, raw[key], defaults=defaults) for key, field in fields.items()
    }
    if validations := _validations(model):
        schema["x-kubernetes-validations"] = validations
    return schema


def _property(field: FieldInfo, raw: Schema, *, defaults: bool) -> Schema:
    schema: Schema = {"description": _text(field.description)}
    if allows_null(field):
        schema["nullable"] = True
    if defaults and not field.is_required() and (default := _default(field)) is not None:
        schema["default"] = default
    return schema | _value(child_model(field.annotation), raw, defaults=defaults)


def _value(child: type[ApiModel] | None, raw: Schema, *, defaults: bool) -> Schema:
    """What a field or an item of a list holds, without its description."""
    options = [option for option in raw.get("anyOf", ()) if option.get("type") != "null"]
    if options:
        (raw,) = options
    if raw.get("type") == "array":
        return _list(child, raw, defaults=defaults)
    if child is not None:
        return _object(child, defaults=defaults)
    return _leaf(raw)


def _list(child: type[ApiModel] | None, raw: Schema, *, defaults: bool) -> Schema:
    kept = {key: value for key, value in raw.items() if key in ("type", "minItems", "maxItems")}
    extensions = {key: value for key, value in raw.items() if key.startswith("x-kubernetes-")}
    return kept | extensions | {"items": _value(child, raw["items"], defaults=defaults)}


_LEAF_KEYS = ("type", "format", "enum", "minimum", "maximum", "minLength", "maxLength", "pattern")
_FORMATS = {"integer": "int64", "number": "double"}
_TIME_LENGTH = 64


def _leaf(raw: Schema) -> Schema:
    """A scalar or a free-form object, in OpenAPI v3.0's words."""
    schema = {key: raw[key] for key in _LEAF_KEYS if key in raw}
    schema |= {key: value for key, value in raw.items() if key.startswith("x-kubernetes-")}
    if raw["type"] in _FORMATS:
        schema["format"] = _FORMATS[raw["type"]]
    if raw.get("format") == "date-time":
        schema["maxLength"] = _TIME_LENGTH
    for exclusive, inclusive in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if exclusive in raw:
            schema |= {inclusive: raw[exclusive], exclusive: True}
    return schema


def _default(field: FieldInfo) -> Any:
    """A field's default in JSON; of an object, only what differs from its own fields' defaults. None: the trainer fills it in,
    if it depends on the task."""
    if by_task(field):
        return None
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, ApiModel):
        return value.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return list(value) if isinstance(value, tuple) else value


def _validations(model: type[ApiModel]) -> list[dict[str, str]]:
    return [{"rule": rule.rule, "message": rule.message} for rule in model.all_rules()]


def _text(description: str | None) -> str:
    return " ".join((description or "").split())
