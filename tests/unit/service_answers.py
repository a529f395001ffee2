"""The answers of a service that answers immediately or later."""

from __future__ import annotations

from typing import Any

from rltraining_trainer.transport import DeferredReply


def answers_of(answer: Any) -> list[tuple[str, Any]]:
    """Returns the answers received so far, as the caller receives them. A deferred answer is added when it arrives."""
    found: list[tuple[str, Any]] = []
    if isinstance(answer, DeferredReply):
        answer.attach(found.append)
    else:
        found.append(("ok", answer))
    return found
