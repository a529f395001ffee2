"""Base classes of the models: camelCase in manifests, snake_case in Python, frozen, unknown keys
rejected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, NamedTuple, Self, TypeVar

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError


def refusal(message: str) -> PydanticCustomError:
    """Returns the error that a validator raises. The user sees `message` unchanged, after the
    field's path."""
    return PydanticCustomError("contract", "{sentence}", {"sentence": message})


def any_of(names: Sequence[str]) -> str:
    """`a, b or c`"""
    return " or ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


@dataclass(frozen=True)
class DependsOnTask:
    """Marks a field with a task-dependent default (see `ByTask`)."""


T = TypeVar("T")
ByTask = Annotated[T, DependsOnTask()]
"""A field with a task-dependent default: `presets.resolve` sets the field from a preset once the
environment's spaces are known.

The CRD has no default for such a field, and a job that does not set it is serialised without it, so
that it never looks as if the user had set it. The model's own default is Atari's, so that every job
is complete."""


def by_task(field: FieldInfo) -> bool:
    """Returns whether a field's default depends on the task."""
    return any(isinstance(mark, DependsOnTask) for mark in field.metadata)


@dataclass(frozen=True)
class Rule:
    """A condition that the API server checks, equivalent to a validator of the same model."""

    rule: str
    """CEL expression over `self` (and `oldSelf` for changes)."""
    message: str


class ApiModel(BaseModel):
    """A piece of the contract. Read newer objects with ``model_validate(data, extra="ignore")``."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )

    cel_rules: ClassVar[tuple[Rule, ...]] = ()

    def has_set(self, *names: str) -> bool:
        """Returns whether the user or a preset has set all these fields (Python names)."""
        return self.model_fields_set.issuperset(names)

    @classmethod
    def all_rules(cls) -> tuple[Rule, ...]:
        """Returns the rules that the API server checks for this object, besides types and
        bounds."""
        return cls.cel_rules

    def to_dict(self) -> dict[str, Any]:
        """Serialises to the form of a manifest or of ``status``: camelCase, JSON types, no unset
        fields.

        A null is kept where it has a meaning: in free-form maps, and where it turns a default off.
        A field with a task-dependent default is left out unless it was set.
        """
        return _without_unset(self, self.model_dump(mode="json", by_alias=True))


class _Field(NamedTuple):
    """Properties of a field that determine whether and how the field is written."""

    name: str
    key: str
    """The field's name in a manifest."""
    depends_on_task: bool
    null_has_meaning: bool


@cache
def _fields(model: type[ApiModel]) -> tuple[_Field, ...]:
    """Returns the fields of a model. The operator writes each job at each of its steps, so they are looked up once."""
    return tuple(
        _Field(name, field.alias or name, by_task(field), field.default is not None or by_task(field))
        for name, field in model.model_fields.items()
    )


def _without_unset(model: ApiModel, dumped: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, key, depends_on_task, null_has_meaning in _fields(type(model)):
        value = getattr(model, name)
        if depends_on_task and not model.has_set(name):
            continue
        if isinstance(value, ApiModel):
            kept[key] = _without_unset(value, dumped[key])
        elif isinstance(value, tuple):
            kept[key] = [
                _without_unset(item, raw) if isinstance(item, ApiModel) else raw
                for item, raw in zip(value, dumped[key], strict=True)
            ]
        elif value is not None or null_has_meaning:
            kept[key] = dumped[key]
    return kept


class OneOf(ApiModel):
    """An object of which exactly one of the fields `choices` is set, as in a Kubernetes union."""

    choices: ClassVar[tuple[str, ...]] = ()
    """Names of the fields (in Python) of which one must be set."""
    noun: ClassVar[str] = "of these"
    """Name of a choice in messages."""
    may_be_none: ClassVar[bool] = False
    """Whether none of them may be set, since the task's preset sets one."""

    @classmethod
    @cache
    def choice_keys(cls) -> tuple[str, ...]:
        """Returns the keys of the choices in a manifest."""
        return tuple(cls.model_fields[name].alias or name for name in cls.choices)

    @classmethod
    def all_rules(cls) -> tuple[Rule, ...]:
        """Returns the rule of one choice, and the model's own rules."""
        keys = ", ".join(cls.choice_keys())
        count = f"[{', '.join(f'has(self.{key})' for key in cls.choice_keys())}].filter(x, x).size()"
        if cls.may_be_none:
            one = Rule(f"{count} <= 1", f"at most one {cls.noun} is possible: one of {keys}")
        else:
            one = Rule(f"{count} == 1", f"exactly one {cls.noun} is needed: one of {keys}")
        return (one, *cls.cel_rules)

    @property
    def name(self) -> str:
        """Key of the choice that is set, as in a manifest: `dqnApex`."""
        return next(key for key, field in self._pairs() if getattr(self, field) is not None)

    @property
    def chosen(self) -> Any:
        """The value of the choice that is set."""
        return next(value for _, field in self._pairs() if (value := getattr(self, field)) is not None)

    @classmethod
    @cache
    def _pairs(cls) -> tuple[tuple[str, str], ...]:
        return tuple(zip(cls.choice_keys(), cls.choices, strict=True))

    @model_validator(mode="after")
    def _one_is_chosen(self) -> Self:
        found = [key for key, field in self._pairs() if getattr(self, field) is not None]
        if len(found) == 1 or (not found and self.may_be_none):
            return self
        named = " and ".join(found)
        if found:
            count = {2: "two", 3: "three"}.get(len(found), str(len(found)))
            needed = "at most one" if self.may_be_none else "exactly one"
            verb = "possible" if self.may_be_none else "needed"
            raise refusal(f"{needed} {self.noun} is {verb}, found {count}: {named}")
        known = ", ".join(self.choice_keys())
        raise refusal(f"exactly one {self.noun} is needed, found none: set one of {known}")
