"""What a checkpoint does to a learner's state."""

from __future__ import annotations

import io
from typing import Any

import torch
from rltraining_trainer.checkpoint import snapshot


def restore(into: Any, source: Any) -> None:
    """Go on in the learner `into`, whose parameters are first spoiled, from the state of `source` as a file keeps it."""
    file = io.BytesIO()
    torch.save(snapshot(source.get_state()), file)
    with torch.no_grad():
        into.parameters.normal_()
    file.seek(0)
    into.set_state(torch.load(file, weights_only=True))
