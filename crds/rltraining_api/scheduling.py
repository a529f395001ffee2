"""`spec.runPolicy.schedulingPolicy`: whom the pods wait for, where a cluster has a queue or a scheduler for groups."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from rltraining_api.base import ApiModel, OneOf
from rltraining_api.fields import Count, ObjectName
from rltraining_api.names import MEMBERS_MAX

GroupSize = Annotated[int, Field(ge=1, le=MEMBERS_MAX)]


class KueueScheduling(ApiModel):
    """Kueue lets each pod begin when its queue has room for it (the plain pods of its documentation). A pod that is lost
    queues again; samplers may be added and removed at any time."""

    queue_name: ObjectName
    """The LocalQueue in the job's namespace."""


class VolcanoScheduling(ApiModel):
    """Volcano starts no pod before there is room for all that the run needs to begin."""

    queue: ObjectName | None = None
    """The queue; without, Volcano's default."""
    min_available: GroupSize | None = None
    """How many pods must fit at once; without, all learners, all replay pods and one sampler, with which a run can
    begin. More than the job has pods counts as all of them."""
    priority_class_name: ObjectName | None = None
    """The PriorityClass by which the job is queued."""


class Coscheduling(ApiModel):
    """The coscheduling plugin (scheduler-plugins) starts no pod before there is room for all that the run needs to begin.
    Where that scheduler is not the default one, name it in the templates: `schedulerName`."""

    min_member: GroupSize | None = None
    """How many pods must fit at once; without, all learners, all replay pods and one sampler, with which a run can
    begin. More than the job has pods counts as all of them."""
    schedule_timeout_seconds: Count | None = None
    """How long pods that have a place wait for the others; without, the plugin's default."""


class SchedulingPolicy(OneOf):
    """Exactly one queue or scheduler that starts the pods together."""

    choices: ClassVar[tuple[str, ...]] = ("kueue", "volcano", "coscheduling")
    noun: ClassVar[str] = "scheduler"

    kueue: KueueScheduling | None = None
    """A queue of Kueue's. Its plain pod integration must be enabled."""
    volcano: VolcanoScheduling | None = None
    """A PodGroup of Volcano's."""
    coscheduling: Coscheduling | None = None
    """A PodGroup of the coscheduling plugin's."""
