"""`spec.environment`: the training environment."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from rltraining_api import patterns
from rltraining_api.base import ApiModel, ByTask, Rule, refusal
from rltraining_api.fields import ATOMIC_LIST, Count, EntryPoint, Fraction, FreeForm

EnvironmentId = Annotated[str, Field(max_length=253, pattern=patterns.ENVIRONMENT_ID)]


class Atari(ApiModel):
    """How games of the Arcade Learning Environment are preprocessed (Mnih et al. 2015, Nature 518; Machado et al. 2018,
    arXiv 1709.06009). The defaults are those of the -v5 games. Rewards are clipped by the algorithm's `rewardClip`."""

    frame_skip: Annotated[int, Field(ge=1, le=1000)] = 4
    """Frames for which an action is repeated. The observation is the maximum of the last two
    (published: 4)."""
    frame_stack: Annotated[int, Field(ge=1, le=1000)] = 4
    """Number of newest frames in one observation (published: 4)."""
    screen_size: Annotated[int, Field(ge=8, le=1000)] = 84
    """Width and height of a frame (published: 84)."""
    grayscale: bool = True
    """Whether frames contain luminance only (published: yes)."""
    noop_max: Annotated[int, Field(ge=0, le=1000)] = 30
    """An episode starts with a random number of no-ops below this number, after one FIRE in games
    that have this action (published: 30)."""
    sticky_actions: Fraction = 0.25
    """Probability that the emulator repeats the previous action, in each frame (Machado et al.:
    .25; Mnih et al. and IMPALA: 0)."""
    full_action_space: bool = False
    """Use all 18 actions instead of the actions that the game uses (Machado et al.: yes; Mnih et
    al.: no)."""
    life_loss_ends_episode: bool = False
    """Let the loss of a life end the episode for learning. The game continues, and reported returns
    are those of complete games (Mnih et al. and IMPALA: yes; Machado et al.: no)."""


ATARI_NEEDS_A_GAME = "atari is for games of the Arcade Learning Environment: environment.id ALE/<Game>-v5"
_INSTEAD_OF_KWARGS = {
    "autoreset_mode": None,
    "batch_size": None,
    "episodic_life": "atari.lifeLossEndsEpisode",
    "frame_skip": "atari.frameSkip",
    "frameskip": "atari.frameSkip",
    "full_action_space": "atari.fullActionSpace",
    "grayscale": "atari.grayscale",
    "img_height": "atari.screenSize",
    "img_width": "atari.screenSize",
    "life_loss_info": "atari.lifeLossEndsEpisode",
    "max_num_frames_per_episode": "maxEpisodeSteps",
    "noop_max": "atari.noopMax",
    "obs_type": "atari.grayscale",
    "repeat_action_probability": "atari.stickyActions",
    "reward_clipping": "the algorithm's rewardClip",
    "stack_num": "atari.frameStack",
    "stack_size": "atari.frameStack",
}
"""Maps keywords of ALE's constructors to the fields that replace them."""


class Normalize(ApiModel):
    """Running normalisation, shared by all samplers and kept with checkpoints and policies."""

    observations: bool = False
    """Normalise each number of an observation to mean 0 and variance 1, and clip it to ±10. Images
    and discrete observations are not changed (Stable-Baselines3, VecNormalize). Numbers beyond
    ±1e19 are errors of the environment."""
    rewards: bool = False
    """Divide rewards by the standard deviation of discounted returns for learning, and clip them to
    ±10. Reported returns do not change. For a3c, a2c, ppo and impala (Stable-Baselines3,
    VecNormalize)."""


WRAPPERS_MAX = 16
ONE_WRAPPER = "exactly one of name and entryPoint is needed"
NO_WRAPPERS_FOR_GAMES = (
    "wrappers are not for games of the Arcade Learning Environment, which are preprocessed in batches: "
    "set atari instead"
)
NO_STEPPING_OF_GAMES = (
    "stepping is not for games of the Arcade Learning Environment, whose emulators have threads: leave it out"
)


class Wrapper(ApiModel):
    """A wrapper around each single environment: one of gymnasium's, or user code."""

    name: Annotated[str, Field(max_length=253, pattern=patterns.CLASS_NAME)] | None = None
    """A class of `gymnasium.wrappers`, such as `FrameStackObservation`."""
    entry_point: EntryPoint | None = None
    """User code, `module:Class`: a `gymnasium.Wrapper`, called with the environment and `kwargs`."""
    kwargs: FreeForm = Field(default_factory=dict)
    """Keyword arguments for the wrapper's constructor, after the environment."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule("[has(self.name), has(self.entryPoint)].filter(x, x).size() == 1", ONE_WRAPPER),
    )

    @property
    def title(self) -> str:
        """The wrapper's name in messages."""
        return self.name or str(self.entry_point)

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.name is None) == (self.entry_point is None):
            raise refusal(ONE_WRAPPER)
        return self


class Environment(ApiModel):
    """The training environment: a gymnasium environment from a package in the image or from user
    code."""

    id: EnvironmentId
    """A gymnasium id (`CartPole-v1`), or `module:Id`, where importing `module` registers the
    environment. Games of the Arcade Learning Environment (`ALE/Pong-v5`) are preprocessed according
    to `atari`."""
    kwargs: FreeForm = Field(default_factory=dict)
    """Keyword arguments for the environment's constructor."""
    num_envs: ByTask[Annotated[int, Field(ge=1, le=65_536)]] = 16
    """Environments that one sampler steps together (Atari: 16)."""
    max_episode_steps: Count | None = None
    """Number of steps after which episodes are truncated, instead of the limit in the environment's
    registration."""
    normalize: ByTask[Normalize | None] = None
    """Running normalisation of observations and rewards; null turns both off (Atari: null)."""
    wrappers: Annotated[
        tuple[Wrapper, ...], Field(max_length=WRAPPERS_MAX, json_schema_extra=ATOMIC_LIST)
    ] = ()
    """Wrappers around each single environment, the innermost first."""
    stepping: Literal["Serial", "Threads", "Processes"] = "Serial"
    """How a sampler steps its environments. Serial: one after the other. Threads: one thread each,
    for simulators that sleep, wait or release the GIL. Processes: one process each, for other slow
    simulators."""
    on_error: Literal["Fail", "Reset"] = "Fail"
    """What happens when an environment raises, or returns an observation or a reward that is NaN,
    infinite or too large. Fail: the job fails. Reset: the environment is reset or recreated, and
    its episode is discarded."""
    max_errors_per_hour: Annotated[int, Field(ge=1, le=1_000_000)] = 60
    """With onError Reset, the number of errors that a sampler tolerates within an hour. The next
    one fails the job."""
    atari: Atari | None = None
    """Preprocessing of a game of the Arcade Learning Environment. Default: as published."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(f"!has(self.atari) || self.id.matches('{patterns.ATARI_ID}')", ATARI_NEEDS_A_GAME),
        Rule(
            f"!has(self.wrappers) || self.wrappers.size() == 0 || !self.id.matches('{patterns.ATARI_ID}')",
            NO_WRAPPERS_FOR_GAMES,
        ),
        Rule(
            f"!has(self.stepping) || self.stepping == 'Serial' || !self.id.matches('{patterns.ATARI_ID}')",
            NO_STEPPING_OF_GAMES,
        ),
    )

    @property
    def code_references(self) -> tuple[str, ...]:
        """The id and the wrappers' entry points, each `module:name` or a name without a module."""
        return (
            self.id,
            *(wrapper.entry_point for wrapper in self.wrappers if wrapper.entry_point is not None),
        )

    @property
    def preprocessing(self) -> Atari | None:
        """How frames are preprocessed, if this is a game of the Arcade Learning Environment."""
        return (self.atari or Atari()) if re.match(patterns.ATARI_ID, self.id) else None

    @model_validator(mode="after")
    def _atari_is_of_a_game(self) -> Self:
        if self.preprocessing is None:
            if self.atari is not None:
                raise refusal(f"{ATARI_NEEDS_A_GAME}, got {self.id}")
            return self
        if self.wrappers:
            raise refusal(NO_WRAPPERS_FOR_GAMES)
        if self.stepping != "Serial":
            raise refusal(NO_STEPPING_OF_GAMES)
        for keyword in self.kwargs:
            if keyword in _INSTEAD_OF_KWARGS:
                field = _INSTEAD_OF_KWARGS[keyword]
                raise refusal(
                    f"kwargs.{keyword} is not for {self.id}: "
                    + (f"set {field} instead" if field else "leave it out")
                )
        return self
