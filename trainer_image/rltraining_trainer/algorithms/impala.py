"""IMPALA: importance weighted actor-learner architecture (Espeholt et al. 2018, arXiv 1802.01561).

Samplers act with parameters that may be a few versions old, and send unrolls. The learner corrects for the older policy with
v-trace.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from rltraining_api.algorithms import Impala
from torch import Tensor

from rltraining_trainer.algorithms.clipped import clipped_objective
from rltraining_trainer.algorithms.divergence import diverged
from rltraining_trainer.algorithms.optimizers import clip_runs, make_optimizer
from rltraining_trainer.algorithms.reproducible import learn_from_blocks, sample_unrolls
from rltraining_trainer.algorithms.returns import moments, normalize
from rltraining_trainer.algorithms.schedules import scheduled
from rltraining_trainer.algorithms.unrolls import Unroll, UnrollCollector, concatenate, move
from rltraining_trainer.algorithms.vtrace import vtrace
from rltraining_trainer.dataflow.flat import flatten_parameters, load_flat
from rltraining_trainer.dataflow.reduce import Reduce, alone
from rltraining_trainer.networks import ActorCritic, Distribution
from rltraining_trainer.world import World


def learner(world: World) -> None:
    """Learns from the unrolls of its samplers. Several learners average their gradients."""
    settings: Impala = world.settings
    network, distribution = world.actor_critic()
    algorithm = ImpalaLearner(network, distribution, settings, world.total_steps, world.device)
    if world.spec.reproducible is not None:
        learn_from_blocks(world, algorithm, distribution, settings.unroll_length, lag=1)
        return
    queue = world.trajectories(settings.queue_capacity, max_lag=settings.max_policy_lag)
    run = world.run(algorithm=algorithm)

    def update(unrolls: list[Unroll] | None, reduce: Reduce) -> dict[str, Tensor]:
        """Makes one update of all learners. ``unrolls``: None if only other learners have some."""
        for unroll, lag in zip(unrolls or (), queue.lags, strict=False):
            steps, episodes = int(unroll["valid"].sum()), int(unroll["episodes"].sum())
            run.count(steps, unroll["episode_return"], episodes=episodes, lag=lag)
        return algorithm.step(unrolls or (), reduce)

    run.train(lambda seconds: queue.get(settings.batch_unrolls, seconds), update)


def sampler(world: World) -> None:
    """Acts with the newest parameters that it has, and sends unrolls."""
    settings: Impala = world.settings
    if world.spec.reproducible is not None:
        sample_unrolls(world, settings.unroll_length)
        return
    network, distribution = world.actor_critic()
    queue, environments = world.trajectories(), world.environments()
    seed = world.start(flatten_parameters(network))
    collector = UnrollCollector.of(
        settings, settings.unroll_length, network, distribution, environments, seed
    )
    while True:
        queue.put(dict(collector.collect()))  # returns with newer parameters in the network


class ImpalaLearner:
    """Updates the network from batches of unrolls.

    Args:
        network: its parameters become views of the flat tensor ``parameters``.
        total_steps: environment steps at which a linear learning-rate schedule reaches 0.
        device: device of the network and of batches.
    """

    def __init__(
        self,
        network: ActorCritic,
        distribution: Distribution,
        settings: Impala,
        total_steps: int | None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.network, self.distribution, self.settings = network.to(device), distribution, settings
        self._device = torch.device(device)
        self.parameters = flatten_parameters(network)
        self._clip_sizes = network.clip_sizes
        self.updates = 0
        self.environment_steps = 0
        """Steps in the batches of all learners."""
        self.total_steps = total_steps
        """Environment steps at which linear schedules reach 0. Follows changes of ``spec.stop``."""
        self._optimizer = make_optimizer(settings.optimizer, self.parameters.numel(), self._device)

    def step(
        self,
        unrolls: Sequence[Unroll],
        reduce: Reduce = alone,
    ) -> dict[str, Tensor]:
        """Makes ``updates_per_batch`` updates. Returns the last one's terms of the loss, each ``[]``.

        Args:
            unrolls: the batch. If empty, this learner follows the updates of other learners.
            reduce: sums the gradient ``[N]`` in place over all learners, and returns the sum of their step counts.

        Raises:
            Diverged: loss or gradient is NaN or infinite. The parameters did not change in that update.
        """
        batch = move(concatenate(unrolls), self._device) if unrolls else None
        steps = float(batch["valid"].sum()) if batch is not None else 0.0
        gradient = self.parameters.grad
        assert gradient is not None
        terms: dict[str, Tensor] = {}
        rate = self.learning_rate(self.environment_steps)
        for update in range(self.settings.updates_per_batch):
            # Sum the gradients of all learners.
            gradient.zero_()
            if batch is not None:
                terms = self._loss(batch)
                terms["loss"].backward()
                terms = {name: term.detach() for name, term in terms.items()}
            total = reduce(gradient, steps)
            if total == 0.0:  # no learner has a valid step
                return terms
            if update == 0:
                self.environment_steps += int(total)

            # Average, clip and apply them.
            if self.settings.loss_reduction == "Mean":
                gradient.div_(total)
                terms = {name: term / max(1.0, steps) for name, term in terms.items()}
            terms["gradient_norm"] = clip_runs(gradient, self.settings.gradient_clip, self._clip_sizes)
            if not math.isfinite(terms.get("loss", 0.0) + terms["gradient_norm"]):
                raise diverged(f"update {self.updates}", terms, batch, self.settings)
            self._optimizer.step(self.parameters.detach(), gradient, rate)
            self.updates += 1
        # Merge statistics after the update, so that it uses those with which the samplers acted, as
        # far as possible.
        if self.network.normalizer is not None:
            self.network.normalizer.merge(batch["moments"] if batch is not None else (), reduce)
        return terms

    def learning_rate(self, environment_steps: int) -> float:
        """Returns the learning rate after N environment steps."""
        settings = self.settings
        return scheduled(
            settings.learning_rate, settings.learning_rate_schedule, environment_steps, self.total_steps
        )

    def get_state(self) -> dict[str, Any]:
        """Returns the complete state. Updates are not random."""
        return {
            "parameters": self.parameters.detach(),
            "optimizer": self._optimizer.get_state(),
            "updates": self.updates,
            "environment_steps": self.environment_steps,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues from a state. Raises ValueError, RuntimeError or KeyError for another network or optimizer."""
        load_flat(self.parameters, state["parameters"])
        self._optimizer.set_state(state["optimizer"])
        self.updates = state["updates"]
        self.environment_steps = state["environment_steps"]

    def _loss(self, batch: Unroll) -> dict[str, Tensor]:
        """Returns −log π · A + baseline_cost · (v − V)² − entropy_cost · H(π), summed over valid steps.

        With ``clip_range`` the clipped objective replaces log π · A, and A is not multiplied by ρ.
        """
        # Compute v-trace targets and advantages from the current policy and values.
        settings = self.settings
        policies, values = self.network.unroll(batch["observation"], batch["state"], batch["first"])
        log_prob, entropy = self.distribution.log_prob_and_entropy(policies[:-1], batch["action"])
        log_ratio = log_prob - batch["log_prob"]
        baseline = values.detach()
        targets, advantages = vtrace(
            log_ratio.detach(),
            settings.discount * ~batch["ended"],
            batch["reward"],
            baseline[:-1],
            baseline[-1],
            rho_clip=settings.rho_clip,
            pg_rho_clip=settings.pg_rho_clip if settings.clip_range is None else None,
            c_clip=settings.c_clip,
            lambda_=settings.lambda_,
            valid=batch["valid"],
        )

        # Sum the losses over valid steps.
        weight = batch["valid"].float()
        if settings.advantage_normalization:
            advantages = normalize(advantages, moments(advantages, batch["valid"]))
        if settings.clip_range is None:
            objective = log_prob * advantages
        else:
            ratio = log_ratio.masked_fill(~batch["valid"], 0.0).exp()
            objective = clipped_objective(ratio, advantages, settings.clip_range)
        policy_loss = -(objective * weight).sum()
        baseline_loss = ((targets - values[:-1]).square() * weight).sum()
        mean_entropy = (entropy * weight).sum()
        loss = policy_loss + settings.baseline_cost * baseline_loss - settings.entropy_cost * mean_entropy
        return {
            "loss": loss,
            "policy_loss": policy_loss,
            "baseline_loss": baseline_loss,
            "entropy": mean_entropy,
        }
