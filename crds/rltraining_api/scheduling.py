"""`spec.runPolicy.schedulingPolicy`: queues, and schedulers for groups of pods."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from rltraining_api.base import ApiModel, OneOf
from rltraining_api.fields import Count, ObjectName
from rltraining_api.names import MEMBERS_MAX

GroupSize = Annotated[int, Field(ge=1, le=MEMBERS_MAX)]


class KueueScheduling(ApiModel):
    """Kueue starts each pod when the queue has capacity (plain pods in Kueue's documentation). A
    replacement of a lost pod queues again. Samplers may be added and removed at any time."""

    queue_name: ObjectName
    """The LocalQueue in the job's namespace."""


class VolcanoScheduling(ApiModel):
    """Volcano starts no pod before there is capacity for all pods that the run needs to start."""

    queue: ObjectName | None = None
    """The queue. Default: Volcano's default."""
    min_available: GroupSize | None = None
    """Number of pods that must fit at the same time. Default: all learners, all replay pods and one
    sampler, with which a run can start. A number larger than the number of pods means all pods."""
    priority_class_name: ObjectName | None = None
    """The PriorityClass of the job in the queue."""


class Coscheduling(ApiModel):
    """The coscheduling plugin (scheduler-plugins) starts no pod before there is capacity for all
    pods that the run needs to start. If this scheduler is not the default one, set `schedulerName`
    in the templates."""

    min_member: GroupSize | None = None
    """Number of pods that must fit at the same time. Default: all learners, all replay pods and one
    sampler, with which a run can start. A number larger than the number of pods means all pods."""
    schedule_timeout_seconds: Count | None = None
    """Seconds that pods with a node wait for the others. Default: the plugin's default."""


class SchedulingPolicy(OneOf):
    """Exactly one queue or scheduler that starts the pods together."""

    choices: ClassVar[tuple[str, ...]] = ("kueue", "volcano", "coscheduling")
    noun: ClassVar[str] = "scheduler"

    kueue: KueueScheduling | None = None
    """A queue of Kueue, whose plain pod integration must be enabled."""
    volcano: VolcanoScheduling | None = None
    """A PodGroup of Volcano."""
    coscheduling: Coscheduling | None = None
    """A PodGroup of the coscheduling plugin."""
