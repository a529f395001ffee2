"""`spec.environment`: what is trained on."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from rltraining_api import patterns
from rltraining_api.base import ApiModel, Rule, refusal
from rltraining_api.fields import Count, CountOrZero, FreeForm

EnvironmentId = Annotated[str, Field(max_length=253, pattern=patterns.ENVIRONMENT_ID)]


class Atari(ApiModel):
    """The preprocessing of Atari frames that is usual in publications (Machado et al. 2018, arXiv 1709.06009,
    and Mnih et al. 2015)."""

    frame_skip: Count = 4
    """Frames for which an action is repeated; the last two are merged by maximum (published: 4)."""
    frame_stack: Count = 4
    """Newest frames that make one observation (published: 4)."""
    screen_size: Count = 84
    """Width and height of a frame (published: 84)."""
    grayscale: bool = True
    """Luminance only (published: yes)."""
    noop_max: CountOrZero = 30
    """An episode starts with up to so many no-ops (published: 30)."""
    life_loss_ends_episode: bool = False
    """Let the loss of a life end the episode for learning (Mnih et al. and IMPALA: yes; Machado et al.: no)."""


ATARI_NOT_BUILT = "is not built yet: leave it out, or preprocess in an environment of your own"


class Environment(ApiModel):
    """What is trained on: a gymnasium environment, from a package in the image or from user code."""

    id: EnvironmentId
    """A gymnasium id (`CartPole-v1`), or `module:Id`, where importing `module` registers the environment."""
    kwargs: FreeForm = Field(default_factory=dict)
    """Keyword arguments for the environment's constructor."""
    num_envs: Annotated[int, Field(ge=1, le=65_536)] = 16
    """Environments that one sampler steps together."""
    max_episode_steps: Count | None = None
    """Truncate episodes here, instead of where the environment's registration says."""
    atari: Atari | None = None
    """Preprocess Atari frames."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (Rule("!has(self.atari)", f"atari {ATARI_NOT_BUILT}"),)

    @field_validator("atari", mode="after")
    @classmethod
    def _available(cls, atari: Atari | None) -> Atari | None:
        if atari is not None:
            raise refusal(ATARI_NOT_BUILT)
        return atari
