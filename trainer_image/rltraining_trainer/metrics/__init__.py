"""Metrics of training: rates, returns, stop rules, and files for curves."""

from rltraining_trainer.metrics.evaluations import EvaluationTracker
from rltraining_trainer.metrics.exposition import Numbers, exposition
from rltraining_trainer.metrics.learning_curve import LearningCurve
from rltraining_trainer.metrics.meters import RateMeter, WaitMeter
from rltraining_trainer.metrics.returns import EpisodeReturns, SmoothedReturn
from rltraining_trainer.metrics.stop import StopCheck, check_stop
from rltraining_trainer.metrics.writer import MetricsWriter

__all__ = [
    "EpisodeReturns",
    "EvaluationTracker",
    "LearningCurve",
    "MetricsWriter",
    "Numbers",
    "RateMeter",
    "SmoothedReturn",
    "StopCheck",
    "WaitMeter",
    "check_stop",
    "exposition",
]
