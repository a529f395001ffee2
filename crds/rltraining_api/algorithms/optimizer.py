"""Optimizers: RMSProp as in TensorFlow, like the published settings; Adam and SGD as in torch."""

from __future__ import annotations

from typing import ClassVar

from rltraining_api.base import ApiModel, OneOf
from rltraining_api.fields import FractionBelowOne, Positive


class RmsProp(ApiModel):
    """RMSProp as in tf.train.RMSPropOptimizer: mean squares start at 1 and epsilon is inside the
    root. In torch epsilon is outside the root, so that about its square root has the same effect
    there. The defaults are from the IMPALA paper for Atari."""

    alpha: FractionBelowOne = 0.99
    """Decay of the running mean of squared gradients (IMPALA, Atari: .99)."""
    epsilon: Positive = 0.01
    """Added to the mean square, inside the root (IMPALA, Atari: .01)."""
    momentum: FractionBelowOne = 0.0
    """Momentum (IMPALA, Atari: 0)."""
    centered: bool = False
    """Normalise by the variance instead of the second moment (Ape-X does, IMPALA does not)."""


class Adam(ApiModel):
    """Adam. The defaults are those of its paper (arXiv 1412.6980)."""

    beta1: FractionBelowOne = 0.9
    """Decay of the running mean of gradients (Adam paper: .9)."""
    beta2: FractionBelowOne = 0.999
    """Decay of the running mean of squared gradients (Adam paper: .999)."""
    epsilon: Positive = 1e-8
    """Added to the root for stability (Adam paper: 1e-8)."""


class Sgd(ApiModel):
    """Stochastic gradient descent."""

    momentum: FractionBelowOne = 0.0
    """Decay of the running sum of gradients; with 0 each step is the gradient times the learning rate (torch: 0)."""


class Optimizer(OneOf):
    """Exactly one optimizer."""

    choices: ClassVar[tuple[str, ...]] = ("rmsprop", "adam", "sgd")
    noun: ClassVar[str] = "optimizer"

    rmsprop: RmsProp | None = None
    """RMSProp."""
    adam: Adam | None = None
    """Adam."""
    sgd: Sgd | None = None
    """Stochastic gradient descent."""
