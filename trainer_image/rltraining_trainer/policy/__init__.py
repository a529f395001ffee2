"""Trained policies: writing, loading, evaluating and rendering them."""

from rltraining_trainer.policy.evaluate import Episode, Evaluation, evaluate
from rltraining_trainer.policy.export import PolicyError, check_finite, export_policy
from rltraining_trainer.policy.film import Film, film
from rltraining_trainer.policy.onnx_program import to_onnx
from rltraining_trainer.policy.policy import Policy
from rltraining_trainer.policy.program import ProgramError, to_exported_program, to_torchscript
from rltraining_trainer.policy.trust import UntrustedCode

__all__ = [
    "Episode",
    "Evaluation",
    "Film",
    "Policy",
    "PolicyError",
    "ProgramError",
    "UntrustedCode",
    "check_finite",
    "evaluate",
    "export_policy",
    "film",
    "to_exported_program",
    "to_onnx",
    "to_torchscript",
]
