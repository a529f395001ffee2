"""`spec.runPolicy.podFailurePolicy`, as in batch/v1."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from rltraining_api.base import ApiModel, OneOf, Rule, refusal
from rltraining_api.fields import ATOMIC_LIST

NO_SUCCESS = "values must not hold 0 with operator In: exit code 0 is no failure"


class OnExitCodes(ApiModel):
    """Matches a container's exit code."""

    container_name: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    """The container. Default: any container of the pod."""
    operator: Literal["In", "NotIn"]
    """In: the code is one of `values`. NotIn: it is not 0 and none of `values`."""
    values: Annotated[
        tuple[Annotated[int, Field(ge=0, le=255)], ...],
        Field(min_length=1, max_length=255, json_schema_extra={"x-kubernetes-list-type": "set"}),
    ]
    """Exit codes, each once; 0 is not allowed with In."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule("self.operator != 'In' || !(0 in self.values)", NO_SUCCESS),
    )

    @field_validator("values", mode="after")
    @classmethod
    def _each_once(cls, values: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(values)) < len(values):
            raise refusal("must name each exit code once")
        return values

    @model_validator(mode="after")
    def _success_is_no_failure(self) -> Self:
        if self.operator == "In" and 0 in self.values:
            raise refusal(NO_SUCCESS)
        return self


class OnPodCondition(ApiModel):
    """Matches a condition of the pod."""

    type: Annotated[str, Field(min_length=1, max_length=316)]
    """The condition's type: `DisruptionTarget`."""
    status: Literal["True", "False", "Unknown"] = "True"
    """The condition's status."""


class FailureRule(OneOf):
    """Action for a pod that ends in the given way: exactly one of `onExitCodes` and
    `onPodConditions`."""

    choices: ClassVar[tuple[str, ...]] = ("on_exit_codes", "on_pod_conditions")
    noun: ClassVar[str] = "requirement"

    action: Literal["FailJob", "Ignore", "Count"]
    """FailJob: the job fails immediately. Ignore: restart, do not count. Count: restart, count
    against backoffLimit."""
    on_exit_codes: OnExitCodes | None = None
    """A container of the pod ended with one of these codes."""
    on_pod_conditions: (
        Annotated[
            tuple[OnPodCondition, ...], Field(min_length=1, max_length=20, json_schema_extra=ATOMIC_LIST)
        ]
        | None
    ) = None
    """The pod has one of these conditions."""


class PodFailurePolicy(ApiModel):
    """Rules in order; the first match applies. If no rule matches, the operator classifies the
    failure."""

    rules: Annotated[
        tuple[FailureRule, ...], Field(min_length=1, max_length=20, json_schema_extra=ATOMIC_LIST)
    ]
    """The rules, first to last."""
