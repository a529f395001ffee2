"""How `maxPolicyLag` limits the samplers of IMPALA, and of A3C and A2C in mode Async, and which algorithms take turns."""

from __future__ import annotations

from rltraining_api.job import MAY_BE_ASYNC, RLTrainingJob


def limit(job: RLTrainingJob) -> int | None:
    """Returns `maxPolicyLag`. None: no limit, or an algorithm without policy lag."""
    if (impala := job.spec.algorithm.impala) is not None:
        return impala.max_policy_lag
    aggregate = getattr(job.spec.algorithm.parameters, "aggregate", None)
    return aggregate.max_policy_lag if aggregate is not None and aggregate.mode == "Async" else None


def without_effect(job: RLTrainingJob) -> str | None:
    """Describes a `maxPolicyLag` that has no effect. None: it has its default, or has an effect."""
    algorithm = job.spec.algorithm
    aggregate = getattr(algorithm.parameters, "aggregate", None)
    if aggregate is None or aggregate.mode == "Async":
        return None
    if aggregate.max_policy_lag == type(aggregate).model_fields["max_policy_lag"].default:
        return None
    field = f"spec.algorithm.{algorithm.name}.aggregate"
    instead = f", or set {field}.mode to Async" if algorithm.name in MAY_BE_ASYNC else ""
    return f"{field}.maxPolicyLag: has no effect in mode Sync, in which no gradient is old: leave it out{instead}"


def takes_turns(job: RLTrainingJob) -> bool:
    """Returns whether samplers wait while the learner makes updates from their rollouts: A3C, A2C and PPO in mode Sync."""
    aggregate = getattr(job.spec.algorithm.parameters, "aggregate", None)
    return aggregate is not None and aggregate.mode == "Sync"


def samplers_with_credits(job: RLTrainingJob) -> int | None:
    """Returns how many samplers can collect at a time. None: any number."""
    longest, items = limit(job), items_of_update(job)
    if longest is None or items is None:
        return None
    if job.spec.algorithm.impala:
        # Each learner hands out the credits for its own queue.
        return job.spec.learner.replicas * max(1, items * longest // 2)
    return max(items, items * longest // 2)


def more_credits(job: RLTrainingJob) -> str:
    """Names the fields that allow more samplers to collect at a time."""
    algorithm = job.spec.algorithm
    fields = "batchUnrolls or maxPolicyLag" if algorithm.impala else "aggregate.maxPolicyLag"
    return f"a larger spec.algorithm.{algorithm.name}.{fields}"


def largest_mean(job: RLTrainingJob, samplers: int) -> float | None:
    """Returns the largest mean policy lag. None for algorithms without.

    A sampler of IMPALA collects one unroll while another one is under way. A sampler of A3C or A2C has one gradient, and the
    queue may hold more.
    """
    items, aggregate = items_of_update(job), getattr(job.spec.algorithm.parameters, "aggregate", None)
    if items is None:
        return None
    under_way = 2 * samplers if aggregate is None else samplers - 1 + aggregate.queue_capacity
    lag = under_way / items
    if (longest := limit(job)) is None:
        return lag
    # A learner of IMPALA hands out one credit at least, before it uses the unroll of the last one.
    least = 1 / items if aggregate is None else 0.0
    return min(lag, max(longest / 2, least))


def items_of_update(job: RLTrainingJob) -> int | None:
    """Returns the unrolls or gradients of an update. None: there is no policy lag, or an update has one of each sampler."""
    if (impala := job.spec.algorithm.impala) is not None:
        return impala.batch_unrolls
    aggregate = getattr(job.spec.algorithm.parameters, "aggregate", None)
    return aggregate.count if aggregate is not None and aggregate.mode == "Async" else None
