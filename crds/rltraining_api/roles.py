"""`spec.learner`, `spec.replay` and `spec.sampler`: number and content of the pods."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator

from rltraining_api import patterns
from rltraining_api.autoscale import Autoscale
from rltraining_api.base import ApiModel, refusal
from rltraining_api.fields import FreeForm, ObjectName
from rltraining_api.names import (
    LABEL_APP_NAME,
    LABEL_MANAGED_BY,
    LEARNERS_MAX,
    MANAGED_BY,
    REPLAYS_MAX,
    RESERVED_PREFIX,
    SAMPLERS_MAX,
    THREADS_MAX,
)

Image = Annotated[str, Field(max_length=1024, pattern=patterns.IMAGE)]


LIST_KEYS = {
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "sysctls": "name",
}
"""Keys by which the items of a template's lists are merged; other lists are replaced."""


def _check_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """Checks the labels and annotations of an object that is created from a template. Values must
    be text, and keys that the operator and NetworkPolicies use to select objects are rejected."""
    for group in ("labels", "annotations"):
        texts = metadata.get(group, {})
        if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
            raise refusal(f"{group} must be an object of texts: put numbers and true or false in quotes")
        for key in texts:
            if key.startswith(RESERVED_PREFIX) or key == LABEL_MANAGED_BY:
                raise refusal(f"{group}: {key} is set by the operator: use a key of another domain")
    if metadata.get("labels", {}).get(LABEL_APP_NAME) == MANAGED_BY:
        raise refusal(
            f"labels: {LABEL_APP_NAME}: {MANAGED_BY} marks the operator's own pods: use another value"
        )
    return metadata


TemplateMetadata = Annotated[FreeForm, AfterValidator(_check_metadata)]
"""Labels and annotations of an object that is created from a template."""


class PodTemplate(ApiModel):
    """A pod template, as in a Deployment. Its container named `trainer` is merged with the
    operator's; everything else is added."""

    metadata: TemplateMetadata = Field(default_factory=dict)
    """Labels and annotations to add to the pods. Keys of rltraining.dev,
    app.kubernetes.io/managed-by, and the value of app.kubernetes.io/name that marks the operator's
    pods are rejected."""
    spec: FreeForm = Field(default_factory=dict)
    """A PodSpec with only the differences from the operator's."""

    @field_validator("spec", mode="after")
    @classmethod
    def _lists_have_keys(cls, spec: dict[str, Any]) -> dict[str, Any]:
        for group in ("containers", "initContainers", "volumes"):
            for item in _items(spec, group, "name"):
                if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", str(item["name"])):
                    raise refusal(
                        f"{group}: a name must be lower-case letters, digits and '-', got {item['name']}"
                    )
        security = spec.get("securityContext", {})
        if not isinstance(security, dict):
            raise refusal("securityContext must be an object")
        _items(security, "sysctls", LIST_KEYS["sysctls"])
        for container in spec.get("containers", ()):
            for group in ("env", "volumeMounts", "ports"):
                _items(container, group, LIST_KEYS[group])
            _check_resources(container.get("resources"))
            if not isinstance(container.get("envFrom") or [], list):
                raise refusal("envFrom must be a list")
        return spec


def _check_resources(resources: Any) -> None:
    """Checks the part of a container into which the operator's defaults are merged."""
    whole = resources or {}
    kinds = [whole.get(kind) or {} for kind in ("requests", "limits")] if isinstance(whole, dict) else [whole]
    if not all(isinstance(kind, dict) for kind in kinds):
        raise refusal("resources must be an object with the objects requests and limits")


def _items(owner: dict[str, Any], group: str, key: str) -> list[dict[str, Any]]:
    """Returns a list of a PodSpec whose items are identified by a key."""
    items = owner.get(group, [])
    if not isinstance(items, list) or not all(_has(item, key) for item in items):
        raise refusal(f"{group} must be a list of objects, each with a {key}")
    return items


def _has(item: Any, key: str) -> bool:
    return isinstance(item, dict) and isinstance(item.get(key), str | int) and bool(item[key])


ONE_LEARNER = "!has(self.learner) || !has(self.learner.replicas) || self.learner.replicas == 1"
"""CEL expression: the job has one learner."""


class LearnerRole(ApiModel):
    """The pods that update the parameters."""

    replicas: Annotated[int, Field(ge=1, le=LEARNERS_MAX)] = 1
    """Number of learner pods. They share the work of each update. With a3c and a2c in mode Async each holds a
    slice of the parameters."""
    threads: Annotated[int, Field(ge=1, le=THREADS_MAX)] | None = None
    """Threads with which each learner computes. More are faster if the network or the batches are large. In a cluster
    request as many CPUs in the template. Default: the variable OMP_NUM_THREADS, or 1."""
    parameter_precision: Literal["Float32", "BFloat16"] = "Float32"
    """Type of the parameters that samplers receive. BFloat16 halves their bytes: samplers then act, or compute gradients,
    with rounded parameters, while learners keep Float32. Statistics of observations are never rounded (not published)."""
    template: PodTemplate = Field(default_factory=PodTemplate)
    """Additions to the pods that the operator creates: resources, node selection, sidecars."""


class ReplayRole(ApiModel):
    """The pods that store the replay memory if its placement is Dedicated."""

    replicas: Annotated[int, Field(ge=1, le=REPLAYS_MAX)] = 1
    """Number of replay pods. Each stores an equal share of `algorithm.*.replay.capacity`."""
    template: PodTemplate = Field(default_factory=PodTemplate)
    """Additions to the pods that the operator creates: resources, node selection, sidecars."""


class SamplerRole(ApiModel):
    """The pods that step environments."""

    replicas: Annotated[int, Field(ge=1, le=SAMPLERS_MAX)] = 1
    """Number of sampler pods. May change while the job runs; `kubectl scale` sets it too. With
    `autoscale` the number at the start, within its bounds; a later change overrides `autoscale`."""
    autoscale: Autoscale | None = None
    """Lets the operator set the number of samplers, so that the learner does not wait for data. May
    change while the job runs. Default: `replicas` samplers."""
    template: PodTemplate = Field(default_factory=PodTemplate)
    """Additions to the pods that the operator creates: resources, node selection, sidecars, another
    image than `spec.image` for the container `trainer`. May change while the job runs: the operator
    then replaces the samplers, at most a tenth of them (at least one) at a time. Immutable with
    `replay.placement: Samplers`, where a replaced sampler loses its replay shard."""


class CodeConfigMap(ApiModel):
    """A ConfigMap in the job's namespace whose keys are Python files."""

    name: ObjectName
    """Name of the ConfigMap."""


class Code(ApiModel):
    """User code that is not in the image; its modules can be imported by `environment.id`,
    `network.entryPoint` and `algorithm.entryPoint`."""

    config_map: CodeConfigMap
    """The ConfigMap with the code."""
