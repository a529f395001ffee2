"""Learners that sum their gradients and apply the same updates.

Learners that share a process group and start from the same state form a *round* of the rendezvous.
A round ends when a member dies or hangs, or when another learner joins. The remaining learners then
form the next round through learner 0.
"""

from rltraining_trainer.group.collectives import GroupChanged
from rltraining_trainer.group.learner_group import LearnerGroup, Timeouts
from rltraining_trainer.group.single_learner_group import GroupDecision, SingleLearnerGroup

__all__ = ["GroupChanged", "GroupDecision", "LearnerGroup", "SingleLearnerGroup", "Timeouts"]
