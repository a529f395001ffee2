"""Looks up the fields of a model by the keys and paths of a manifest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args, get_origin

from pydantic.fields import FieldInfo

from rltraining_api.base import ApiModel, OneOf, by_task

Path = Sequence[str | int]


def fields_by_key(model: type[ApiModel]) -> dict[str, FieldInfo]:
    """Returns the fields of a model by their names in a manifest."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def child_model(annotation: Any) -> type[ApiModel] | None:
    """Returns the model of a field that contains a model, an optional model or a list of models,
    and None for other fields."""
    if isinstance(annotation, type) and issubclass(annotation, ApiModel):
        return annotation
    return next((model for arg in get_args(annotation) if (model := child_model(arg))), None)


def field_at(model: type[ApiModel], path: Path) -> FieldInfo | None:
    """Returns the field at a path, or None if the models have no such field."""
    field: FieldInfo | None = None
    at: type[ApiModel] | None = model
    for step in path:
        if isinstance(step, int):
            continue
        field = fields_by_key(at).get(step) if at else None
        at = child_model(field.annotation) if field else None
    return field


def model_at(model: type[ApiModel], path: Path) -> type[ApiModel] | None:
    """Returns the model at a path, or None if there is none."""
    if not path:
        return model
    field = field_at(model, path)
    return child_model(field.annotation) if field else None


def is_choice(field: FieldInfo) -> bool:
    """Returns whether the field contains an object of which exactly one field is set, such as the
    algorithm."""
    inner = (field.annotation, *get_args(field.annotation))
    is_list = get_origin(field.annotation) is tuple
    return not is_list and any(isinstance(each, type) and issubclass(each, OneOf) for each in inner)


def allows_null(field: FieldInfo) -> bool:
    """Returns whether null has a separate meaning: it turns off a default."""
    if type(None) not in get_args(field.annotation) or field.is_required():
        return False
    return field.default is not None or by_task(field)


def may_be_absent(field: FieldInfo | None) -> bool:
    """Returns whether a field is optional and has no default."""
    return field is None or (not field.is_required() and (field.default is None or by_task(field)))


def dotted(path: Path) -> str:
    """`spec.runPolicy.podFailurePolicy.rules[0].action`"""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
