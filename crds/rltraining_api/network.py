"""`spec.network`: the network for policy and value."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from rltraining_api.base import ApiModel, ByTask, OneOf, Rule, refusal
from rltraining_api.fields import EntryPoint, LayerSizes

Width = Annotated[int, Field(ge=1, le=65_536)]


class Mlp(ApiModel):
    """Fully connected layers, for vectors."""

    hidden_sizes: ByTask[LayerSizes] = (64, 64)
    """Width of each hidden layer, first to last."""
    activation: ByTask[Literal["Tanh", "Relu", "Elu", "Silu"]] = "Tanh"
    """Activation function after each layer."""


class Cnn(ApiModel):
    """The settings that all convolutional networks have."""

    gradient_precision: Literal["Float32", "BFloat16"] = "Float32"
    """Type in which the layers compute while gradients are computed. BFloat16 is faster on processors with instructions for
    it, such as AVX512_BF16. Parameters, gradients, heads, evaluations and policies stay Float32 (not published)."""


class NatureCnn(Cnn):
    """The three convolutions of Mnih et al. 2015 (Nature 518), for images."""

    hidden_size: Width = 512
    """Width of the fully connected layer after the convolutions (published: 512)."""


class ImpalaCnn(Cnn):
    """The deep residual network of IMPALA (arXiv 1802.01561, figure 3), for images."""

    channels: LayerSizes = (16, 32, 32)
    """Channels of each section: a convolution, a pooling and two residual blocks (published: 16, 32, 32)."""
    hidden_size: Width = 256
    """Width of the fully connected layer after the sections (published: 256)."""


class Lstm(ApiModel):
    """A recurrent core on the network's features. IMPALA's core also received the last reward and
    action. Here an environment can add them to its observations."""

    hidden_size: ByTask[Width] = 256
    """Width of the recurrent state (IMPALA: 256)."""


LogStd = Annotated[float, Field(ge=-20, le=20)]
LOG_STD_BOUNDS = "gaussian.minLogStd must be at most gaussian.maxLogStd"


class Gaussian(ApiModel):
    """The distribution of actions in a Box, for a3c, a2c, ppo and impala. The bounds of
    the Box are scaled to [-1, 1]."""

    initial_log_std: LogStd = 0.0
    """Initial logarithm of the standard deviation (openai/baselines, Stable-Baselines3: 0)."""
    min_log_std: LogStd | None = None
    """Minimum logarithm of the standard deviation. Default: no limit (openai/baselines: none)."""
    max_log_std: LogStd | None = None
    """Maximum logarithm of the standard deviation. Default: no limit (openai/baselines: none)."""
    squash: Literal["Clip", "Tanh"] = "Clip"
    """How samples are kept within the bounds of actions. Clip: clipped to the bounds, with
    probabilities of the unclipped sample. Tanh: squashed by a tanh, with probabilities of the
    result (PPO and IMPALA: Clip; Haarnoja et al. 2018, arXiv 1812.05905, appendix C: Tanh)."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.minLogStd) || !has(self.maxLogStd) || self.minLogStd <= self.maxLogStd", LOG_STD_BOUNDS
        ),
    )

    @model_validator(mode="after")
    def _bounds_are_in_order(self) -> Self:
        low, high = self.min_log_std, self.max_log_std
        if low is not None and high is not None and low > high:
            raise refusal(f"{LOG_STD_BOUNDS} ({high:g}), got {low:g}")
        return self


class Network(OneOf):
    """At most one network, and optionally an LSTM on top. The preset chooses the network if none is
    set, and the values of its fields that are not set."""

    choices: ClassVar[tuple[str, ...]] = ("mlp", "nature_cnn", "impala_cnn", "entry_point")
    noun: ClassVar[str] = "network"
    may_be_none: ClassVar[bool] = True

    mlp: Mlp | None = None
    """Fully connected layers."""
    nature_cnn: NatureCnn | None = None
    """The convolutional network of DQN."""
    impala_cnn: ImpalaCnn | None = None
    """The deep residual network of IMPALA."""
    entry_point: EntryPoint | None = None
    """User code, `module:factory`: a function that creates the network."""
    lstm: Lstm | None = None
    """A recurrent core on top of the network."""
    value_network: Literal["Separate", "Shared"] | None = None
    """Whether a3c, a2c, ppo and impala have a separate network for the value or one network with
    two heads.
    Default: Separate for mlp without an LSTM, otherwise Shared (baselines, Stable-Baselines3: the
    same)."""

    gaussian: Gaussian | None = None
    """The distribution of actions in a Box, for a3c, a2c, ppo and impala."""

    @property
    def has_separate_value(self) -> bool:
        """Whether the value has a separate network, of algorithms that have a policy and a value."""
        if self.value_network is not None:
            return self.value_network == "Separate"
        return self.mlp is not None and self.lstm is None

    @classmethod
    def default(cls) -> Self:
        """Two layers of 64 with tanh, as is usual for small vector observations."""
        return cls(mlp=Mlp())
