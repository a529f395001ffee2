"""The defaults that depend on the task: one table by algorithm and preset, with the source of each value.

A path is of the algorithm's own settings, or begins with `network` or `environment`. Sources:

- paper: the algorithm's own, which each field names;
- SB3 zoo: github.com/DLR-RM/rl-baselines3-zoo, hyperparams/<algorithm>.yml, with the entry;
- CleanRL: github.com/vwxyzjn/cleanrl, with the file;
- Spinning Up: github.com/openai/spinningup, with the file;
- measured: the project's own runs of the tasks in docs/defaults.md, where published settings are for another data path.

A settings model can define its values itself, as `presets`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from rltraining_api.algorithms import ALGORITHMS
from rltraining_api.fields import Preset
from rltraining_api.preset_types import Presets, Values
from rltraining_api.preset_types import values_of as _values

_ADAM = {"adam": {"epsilon": 1e-5}}
_TANH_64 = {"mlp": {"hiddenSizes": [64, 64], "activation": "Tanh"}}
_RELU_256 = {"mlp": {"hiddenSizes": [256, 256], "activation": "Relu"}}
_NATURE_CNN: dict[str, Any] = {"natureCnn": {}}
_IMPALA_CNN: dict[str, Any] = {"impalaCnn": {}}
_NORMALIZE = {"observations": True, "rewards": True}

_PPO: dict[Preset, Values] = {
    "Atari": {
        **_values(
            "PPO paper, table 5",
            discount=0.99,
            rolloutLength=128,
            epochs=3,
            minibatchSize=256,
            learningRate=2.5e-4,
            learningRateSchedule="Linear",
            clipRange=0.1,
            clipRangeSchedule="Linear",
            gaeLambda=0.95,
            entropyCost=0.01,
            baselineCost=1.0,
            rewardClip=1.0,
        ),
        **_values("openai/baselines ppo2", optimizer=_ADAM),
        **_values("Mnih et al. 2015", network=_NATURE_CNN),
        **_values("measured", environment__normalize=None, environment__numEnvs=16),
    },
    "MuJoCo": {
        **_values(
            "CleanRL ppo_continuous_action.py",
            discount=0.99,
            epochs=10,
            minibatchSize=64,
            learningRate=3e-4,
            learningRateSchedule="Linear",
            clipRange=0.2,
            clipRangeSchedule="Constant",
            gaeLambda=0.95,
            entropyCost=0.0,
            baselineCost=0.25,
            optimizer=_ADAM,
            rewardClip=None,
            network=_TANH_64,
            environment__normalize=_NORMALIZE,
        ),
        **_values(
            "CleanRL ppo_continuous_action.py: 2048 steps of one environment, here 1024 in each of 2 samplers",
            rolloutLength=1024,
            environment__numEnvs=1,
        ),
    },
    "Classic": {
        **_values("SB3 zoo ppo.yml, Acrobot", environment__normalize=_NORMALIZE),
        **_values("SB3 zoo ppo.yml, LunarLander", discount=0.999, gaeLambda=0.98),
        **_values(
            "Stable-Baselines3 PPO",
            epochs=10,
            minibatchSize=64,
            learningRate=3e-4,
            clipRange=0.2,
            clipRangeSchedule="Constant",
        ),
        **_values(
            "CleanRL ppo.py",
            rolloutLength=128,
            learningRateSchedule="Linear",
            entropyCost=0.01,
            baselineCost=0.25,
            optimizer=_ADAM,
            rewardClip=None,
            network=_TANH_64,
        ),
        **_values(
            "SB3 zoo ppo.yml, LunarLander: 16 environments, here 8 in each of 2 samplers",
            environment__numEnvs=8,
        ),
    },
}

_A2C: dict[Preset, Values] = {
    "Atari": {
        **_values(
            "openai/baselines a2c",
            discount=0.99,
            rolloutLength=5,
            learningRate=7e-4,
            learningRateSchedule="Linear",
            optimizer={"rmsprop": {"epsilon": 1e-5}},
            gradientClip=0.5,
            gaeLambda=1.0,
            entropyCost=0.01,
            baselineCost=0.5,
            lossReduction="Mean",
            advantageNormalization=False,
            rewardClip=1.0,
            environment__normalize=None,
            environment__numEnvs=16,
        ),
        **_values("Mnih et al. 2015", network=_NATURE_CNN),
    },
    "MuJoCo": {
        **_values(
            "SB3 zoo a2c.yml, HalfCheetah",
            discount=0.99,
            rolloutLength=8,
            learningRate=9.6e-4,
            learningRateSchedule="Linear",
            optimizer={"rmsprop": {"epsilon": 1e-5}},
            gradientClip=0.5,
            gaeLambda=0.9,
            entropyCost=0.0,
            baselineCost=0.4,
            lossReduction="Mean",
            advantageNormalization=False,
            rewardClip=None,
            network=_TANH_64,
            environment__normalize=_NORMALIZE,
            environment__numEnvs=4,
        ),
    },
    "Classic": {
        **_values("SB3 zoo a2c.yml, Acrobot", environment__normalize=_NORMALIZE, gradientClip=0.5),
        **_values(
            "measured",
            discount=0.99,
            rolloutLength=5,
            learningRate=1e-3,
            learningRateSchedule="Linear",
            optimizer=_ADAM,
            gaeLambda=0.95,
            entropyCost=0.01,
            baselineCost=0.25,
            lossReduction="Mean",
            advantageNormalization=False,
            rewardClip=None,
            network=_TANH_64,
            environment__numEnvs=8,
        ),
    },
}

_A3C: dict[Preset, Values] = {
    "Atari": {
        **_values(
            "A3C paper",
            discount=0.99,
            rolloutLength=5,
            learningRate=7e-4,
            learningRateSchedule="Linear",
            optimizer={"rmsprop": {"epsilon": 0.1}},
            gradientClip=40.0,
            gaeLambda=1.0,
            entropyCost=0.01,
            baselineCost=0.25,
            lossReduction="Sum",
            advantageNormalization=False,
            rewardClip=1.0,
        ),
        **_values("Mnih et al. 2015", network=_NATURE_CNN),
        **_values("measured", environment__normalize=None, environment__numEnvs=16),
    },
    "MuJoCo": dict(_A2C["MuJoCo"]),
    "Classic": dict(_A2C["Classic"]),
}

_IMPALA_VECTORS = _values(
    "measured",
    queueCapacity=0,
    learningRateSchedule="Linear",
    optimizer=_ADAM,
    gradientClip=0.5,
    baselineCost=0.25,
    lossReduction="Mean",
    rewardClip=None,
    network=_TANH_64,
    environment__normalize=_NORMALIZE,
    environment__numEnvs=16,
)

_IMPALA: dict[Preset, Values] = {
    "Atari": {
        **_values(
            "IMPALA paper, table G.1",
            discount=0.99,
            unrollLength=20,
            updatesPerBatch=1,
            learningRate=6e-4,
            learningRateSchedule="Linear",
            optimizer={"rmsprop": {"epsilon": 0.01}},
            gradientClip=40.0,
            entropyCost=0.01,
            baselineCost=0.25,
            lossReduction="Sum",
            advantageNormalization=False,
            rewardClip=1.0,
            clipRange=None,
            network=_IMPALA_CNN,
            environment__normalize=None,
            environment__numEnvs=32,
            **{"lambda": 1.0},
        ),
        **_values("measured", queueCapacity=1),
    },
    "MuJoCo": {
        **_IMPALA_VECTORS,
        **_values("IMPALA paper, table G.1", discount=0.99, learningRate=6e-4),
        **_values(
            "measured",
            unrollLength=32,
            updatesPerBatch=16,
            clipRange=0.2,
            entropyCost=0.0,
            advantageNormalization=True,
            **{"lambda": 0.95},
        ),
    },
    "Classic": {
        **_IMPALA_VECTORS,
        **_values("SB3 zoo ppo.yml, LunarLander", discount=0.999, **{"lambda": 0.98}),
        **_values(
            "measured",
            unrollLength=16,
            updatesPerBatch=8,
            clipRange=0.2,
            learningRate=1e-3,
            entropyCost=0.01,
            advantageNormalization=True,
        ),
    },
}

_DQN_CLASSIC = {
    **_values("Ape-X paper", nStep=3),
    **_values(
        "SB3 zoo dqn.yml, LunarLander",
        batchSize=128,
        learningRate=6.3e-4,
        targetUpdatePeriod=250,
        targetUpdateRate=1.0,
        gradientClip=10.0,
        optimizer={"adam": {}},
        rewardClip=None,
        network=_RELU_256,
        replay__capacity=50_000,
        replay__minimum=1_000,
    ),
    **_values("SB3 zoo dqn.yml, LunarLander: an update each second step", replay__samplesPerInsert=64.0),
    **_values("measured", parameterRefreshSteps=16, environment__normalize=None, environment__numEnvs=8),
}

_DQN: dict[Preset, Values] = {
    "Atari": {
        **_values(
            "Ape-X paper",
            nStep=3,
            batchSize=512,
            learningRate=6.25e-5,
            targetUpdatePeriod=2500,
            targetUpdateRate=1.0,
            gradientClip=40.0,
            optimizer={"rmsprop": {"alpha": 0.95, "epsilon": 1.5e-7, "centered": True}},
            parameterRefreshSteps=100,
            rewardClip=1.0,
            replay__capacity=2_000_000,
            replay__minimum=50_000,
        ),
        **_values("Ape-X paper: 9.7 k drawn, 12.5 k added in a second", replay__samplesPerInsert=0.8),
        **_values("Mnih et al. 2015", network=_NATURE_CNN),
        **_values("measured", environment__normalize=None, environment__numEnvs=16),
    },
    "MuJoCo": _DQN_CLASSIC,
    "Classic": _DQN_CLASSIC,
}

_DDPG_MUJOCO = {
    **_values(
        "Spinning Up ddpg.py",
        batchSize=100,
        actorLearningRate=1e-3,
        criticLearningRate=1e-3,
        targetUpdatePeriod=1,
        targetUpdateRate=0.005,
        gradientClip=None,
        optimizer={"adam": {}},
        rewardClip=None,
        network=_RELU_256,
        replay__capacity=1_000_000,
        replay__minimum=1_000,
        warmup="Random",
    ),
    **_values("Spinning Up ddpg.py: an update each step", replay__samplesPerInsert=100.0),
    **_values("DDPG paper", noise="OrnsteinUhlenbeck"),
    **_values(
        "measured",
        nStep=3,
        parameterRefreshSteps=16,
        explorationNoise=0.3,
        explorationSpread=1.0,
        environment__normalize=None,
        environment__numEnvs=4,
    ),
}

_DDPG: dict[Preset, Values] = {
    "Atari": {
        **_values(
            "D4PG paper",
            nStep=5,
            batchSize=256,
            actorLearningRate=1e-4,
            criticLearningRate=1e-4,
            optimizer={"adam": {}},
        ),
        **_values(
            "Ape-X paper, appendix",
            targetUpdatePeriod=100,
            targetUpdateRate=1.0,
            gradientClip=40.0,
            parameterRefreshSteps=400,
            explorationNoise=0.3,
            explorationSpread=0.0,
            noise="Gaussian",
            warmup="Policy",
            rewardClip=None,
            replay__capacity=1_000_000,
        ),
        **_values("Mnih et al. 2015", network=_NATURE_CNN),
        **_values(
            "measured",
            replay__minimum=10_000,
            replay__samplesPerInsert=None,
            environment__normalize=None,
            environment__numEnvs=16,
        ),
    },
    "MuJoCo": _DDPG_MUJOCO,
    "Classic": _DDPG_MUJOCO,
}

_USER_ENVIRONMENT = _values("measured", environment__normalize=None, environment__numEnvs=16)
_USER_VECTORS = {**_values("SB3", network=_TANH_64), **_USER_ENVIRONMENT}

_USER: dict[Preset, Values] = {
    "Atari": {**_values("Mnih et al. 2015", network=_NATURE_CNN), **_USER_ENVIRONMENT},
    "MuJoCo": _USER_VECTORS,
    "Classic": _USER_VECTORS,
}

_TABLES: dict[str, Presets] = {
    "a3c": _A3C,
    "a2c": _A2C,
    "ppo": _PPO,
    "dqnApex": _DQN,
    "ddpgApex": _DDPG,
    "impala": _IMPALA,
    "entryPoint": _USER,
}


def _own_presets() -> dict[str, Presets]:
    """Returns the presets that settings models define themselves, by the algorithm's key."""
    return {
        key: own for key, model in ALGORITHMS.items() if (own := getattr(model, "presets", None)) is not None
    }


PRESET_VALUES: Mapping[str, Presets] = MappingProxyType(_TABLES | _own_presets())
"""By the algorithm's key in a manifest and preset."""
