"""Several learners that update in step: they sum their gradients, and whoever dies, the others go on.

A *generation* is a set of learners that share one process group and began with the same state. It ends when a
member dies, freezes or wants to come in, and the next one forms through learner 0.
"""

from rltraining_trainer.group.collectives import GroupChanged
from rltraining_trainer.group.learner_group import GroupDecision, LearnerGroup, SingleLearnerGroup, Timeouts

__all__ = ["GroupChanged", "GroupDecision", "LearnerGroup", "SingleLearnerGroup", "Timeouts"]
