"""Observations of several parts become one array, and each mask belongs to the acted-on observation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from rltraining_api.environment import Environment
from rltraining_trainer.environments import Faults, Stepper, make_environments
from rltraining_trainer.environments.masks import mask_array
from rltraining_trainer.environments.pack_space import pack_space
from rltraining_trainer.environments.packed_space import PackedSpace
from rltraining_trainer.environments.packing import pack_environments
from rltraining_trainer.errors import BadConfiguration, UserCodeError

IMAGE = spaces.Box(0, 255, (5, 6, 3), np.uint8)
NESTED = spaces.Dict(
    {
        "camera": IMAGE,
        "pose": spaces.Dict(
            {"arm": spaces.Box(-1, 1, (2, 2), np.float64), "speed": spaces.Box(-9, 9, (), np.float32)}
        ),
        "goal": spaces.Tuple([spaces.Discrete(5, start=2), spaces.MultiBinary(3)]),
    }
)


class Masked(gym.Env):
    """Action t % 3 is valid at step t, and observations contain t. Episodes end after 4 steps."""

    observation_space = spaces.Box(-100, 100, (1,), np.float32)
    action_space = spaces.Discrete(3)
    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, where: str = "info", bad: str = "") -> None:
        self.where, self.bad = where, bad
        if where == "key":
            parts = {"t": self.observation_space, "action_mask": spaces.Box(0, 1, (3,), np.int8)}
            self.observation_space = spaces.Dict(parts)
        self.t, self.render_mode = 0, None

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.t = 0
        return self._seen()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.t += 1
        observation, info = self._seen()
        return observation, float(action), self.t == 4, False, info

    def _seen(self) -> tuple[Any, dict]:
        mask = np.zeros(3, np.int8)
        if self.t < 4 and not (self.bad == "empty" and self.t == 2):
            mask[self.t % 3] = 1
        t = np.full(1, self.t, np.float32)
        if self.where == "key":
            return {"t": t, "action_mask": mask}, {}
        if self.t == 4 or (self.bad == "missing" and self.t == 2):
            return t, {}
        return t, {"action_mask": mask[:2] if self.bad == "short" and self.t == 2 else mask}


@pytest.fixture
def masked() -> Iterator[Callable[..., Environment]]:
    gym.register("Masked-v0", entry_point=Masked)
    yield lambda **kwargs: Environment(id="Masked-v0", kwargs=kwargs)
    del gym.registry["Masked-v0"]


def test_parts_of_any_depth_and_type_survive_packing() -> None:
    space, left_out = pack_space(NESTED, spaces.Discrete(2))
    assert isinstance(space, PackedSpace)
    assert (space.dtype, left_out) == (np.uint8, ()), "images keep their bytes"
    assert space.shape[0] % 4 == 0
    assert space.shape[0] - 4 * space.numbers < IMAGE.shape[0] * IMAGE.shape[1] * 3 + 4

    NESTED.seed(3)
    samples = [NESTED.sample() for _ in range(4)]
    batch = gym.vector.utils.concatenate(NESTED, samples, gym.vector.utils.create_empty_array(NESTED, 4))
    rows = space.pack(batch, 4)
    for part in space.parts:
        found = space.part_of(rows, part).reshape(4, *part.shape)
        np.testing.assert_allclose(found, part.of(batch), rtol=1e-6)
    assert space.contains(space.sample())


def test_without_an_image_the_parts_are_float32_and_vectors_come_first() -> None:
    space, _ = pack_space(
        spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(-1, 1, (2,))}), spaces.Discrete(2)
    )
    assert isinstance(space, PackedSpace)
    assert (space.dtype, space.shape, space.vector_size) == (np.float32, (3,), 2)
    row = space.pack({"a": np.array([2]), "b": np.array([[0.5, -0.5]])}, 1)
    assert row.tolist() == [[0.5, -0.5, 2.0]]


@pytest.mark.parametrize(
    ("space", "action", "sentence"),
    [
        (
            spaces.Dict({"a": spaces.Sequence(spaces.Discrete(2)), "b": IMAGE}),
            spaces.Discrete(2),
            r"the part 'a' of observations, Sequence.*, is not an array of numbers; leave it out with environment\.wrappers: "
            r"\[\{name: FilterObservation, kwargs: \{filter_keys: \[\.\.\.\]\}\}\]",
        ),
        (
            spaces.Dict({"mission": spaces.Text(9)}),
            spaces.Discrete(2),
            r"do not contain an array of numbers",
        ),
        (
            spaces.Dict({"action_mask": spaces.MultiBinary(3), "b": IMAGE}),
            spaces.Discrete(2),
            r"'action_mask' of observations has 3 entries, but the actions of Discrete\(2\) have 2 choices",
        ),
        (
            spaces.Dict({"action_mask": spaces.MultiBinary(2)}),
            spaces.Discrete(2),
            r"contain only the action mask",
        ),
        (
            spaces.Dict({"pose": spaces.Dict({0: IMAGE})}),
            spaces.Discrete(2),
            r"the keys of a Dict of observations must be text, got 0; name the part, for example 'part0'",
        ),
    ],
    ids=range(5),
)
def test_spaces_that_cannot_be_packed_are_reported_in_one_sentence(
    space: spaces.Space, action: spaces.Space, sentence: str
) -> None:
    with pytest.raises(BadConfiguration, match=sentence):
        pack_space(space, action)


def test_text_is_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    environments = make_environments(Environment(id="MiniGrid-DoorKey-5x5-v0"), 2)
    space = environments.single_observation_space
    assert isinstance(space, PackedSpace)
    assert [part.path for part in space.parts] == [("direction",), ("image",)]
    assert "text in observations of 'MiniGrid-DoorKey-5x5-v0' is left out: mission" in caplog.text
    assert environments.reset(seed=1)[0].shape == (2, 152), (
        "147 bytes of image, 4 of direction, and one to fill it up"
    )
    environments.close()


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("where", ["info", "key"])
def test_a_mask_is_of_the_observation_that_it_is_packed_with(
    where: str, num_envs: int, masked: Callable[..., Environment]
) -> None:
    """Covers two episodes. In the last observation, on which no action is taken, all actions are valid."""
    stepper = Stepper(make_environments(masked(where=where), num_envs), "Masked-v0")
    space = stepper.environments.single_observation_space
    assert isinstance(space, PackedSpace)
    assert space.mask is not None
    assert space.mask_from_info == (where == "info")
    other = next(part for part in space.parts if not part.is_mask)
    observation = stepper.reset(0)
    for step in range(11):
        t = step % 5
        mask, seen = space.part_of(observation, space.mask), space.part_of(observation, other)
        assert (seen == t).all()
        expected = np.ones(3) if t == 4 else np.eye(3)[t % 3]
        assert (mask == expected).all(), f"at step {step}"
        observation = stepper.step(np.zeros(num_envs, np.int64)).observation
    stepper.close()


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
@pytest.mark.parametrize("where", ["info", "key"])
def test_masks_in_the_other_autoreset_modes(where: str, mode: AutoresetMode) -> None:
    environments = SyncVectorEnv([lambda: Masked(where)] * 2, autoreset_mode=mode)
    stepper = Stepper(pack_environments(environments, "x"), "x")
    space: Any = stepper.environments.single_observation_space
    other = next(part for part in space.parts if not part.is_mask)
    observation = stepper.reset(0)
    for step in range(9):
        t = step % 4
        assert (space.part_of(observation, other) == t).all()
        assert (space.part_of(observation, space.mask) == np.eye(3)[t % 3]).all()
        result = stepper.step(np.zeros(2, np.int64))
        observation = result.observation
        if t == 3:
            assert result.final is not None
            assert (space.part_of(result.final, other) == 4).all()
            assert (space.part_of(result.final, space.mask) == 1).all()


@pytest.mark.parametrize(
    ("kwargs", "sentence"),
    [
        (
            {"bad": "empty"},
            r"step must return a mask \(action_mask\) in which an action is valid; in environment 0",
        ),
        (
            {"bad": "empty", "where": "key"},
            r"step must return a mask \(observation\.action_mask\) in which an action is valid",
        ),
        ({"bad": "missing"}, r'step must return info\["action_mask"\] with each observation'),
    ],
    ids=range(3),
)
@pytest.mark.parametrize("num_envs", [1, 2])
def test_a_mask_that_cannot_be_used_is_the_users_error(
    num_envs: int, kwargs: dict[str, str], sentence: str, masked: Callable[..., Environment]
) -> None:
    stepper = Stepper(make_environments(masked(**kwargs), num_envs), "Masked-v0")
    stepper.reset(0)
    stepper.step(np.zeros(num_envs, np.int64))
    with pytest.raises(UserCodeError, match=rf"environment 'Masked-v0': {sentence}"):
        stepper.step(np.zeros(num_envs, np.int64))


@pytest.mark.parametrize(
    ("bad", "where"), [("empty", "info"), ("missing", "info"), ("short", "info"), ("empty", "key")]
)
def test_a_mask_that_cannot_be_used_is_an_error_that_a_reset_survives(
    bad: str, where: str, masked: Callable[..., Environment]
) -> None:
    spec = masked(bad=bad, where=where).model_copy(update={"on_error": "Reset", "max_errors_per_hour": 5})
    stepper = Stepper(make_environments(spec, 2), "Masked-v0", Faults.of(spec))
    space = stepper.environments.single_observation_space
    assert isinstance(space, PackedSpace)
    assert space.mask is not None
    stepper.reset(0)
    steps = [stepper.step(np.zeros(2, np.int64)) for _ in range(4)]

    # Each second step fails in both environments, and begins an episode.
    for failed in (steps[1], steps[3]):
        assert not failed.valid.any()
        assert failed.discarded is not None
        assert failed.discarded.all()
        assert failed.first.all()
        assert space.part_of(failed.observation, space.mask).tolist() == [[1, 0, 0]] * 2
    assert stepper.stats.discarded == 4
    assert stepper.stats.first_error.startswith("environment 'Masked-v0': step must return")
    stepper.step(np.zeros(2, np.int64))
    with pytest.raises(UserCodeError, match="more than 5 errors of environments within an hour"):
        stepper.step(np.zeros(2, np.int64))


@pytest.mark.parametrize("mask", [[0.5, 1, 0], [-1, 0, 1], [np.nan, 1, 1], [2, 0, 0]])
def test_a_mask_has_zeros_and_ones_only(mask: list[float]) -> None:
    assert mask_array(mask, 3) is None
    for valid in ([0, 1, 1], [0.0, 1.0, 1.0], [False, True, True]):
        found = mask_array(valid, 3)
        assert found is not None
        assert found.tolist() == [0, 1, 1]


def test_a_mask_of_the_wrong_size_is_the_users_error(masked: Callable[..., Environment]) -> None:
    stepper = Stepper(make_environments(masked(bad="short"), 1), "Masked-v0")
    stepper.reset(0)
    stepper.step(np.zeros(1, np.int64))
    with pytest.raises(
        UserCodeError, match=r'must return info\["action_mask"\] as an array of 3 zeros and ones, .*\(2,\)'
    ):
        stepper.step(np.zeros(1, np.int64))
