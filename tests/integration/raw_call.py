"""Compiles raw_call.cpp, once for each source and torch. `make integration` does so first, since it takes minutes beside
other compilers, and tests have limits."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from rltraining_trainer.transport.gate.build import FILE, compile_gate, import_from

SOURCE = Path(__file__).with_suffix(".cpp")


def compiled() -> Path:
    """Where the compiled module is. The first time takes 15 s of a core."""
    digest = hashlib.sha256(f"{torch.__version__} {SOURCE.read_text()}".encode()).hexdigest()[:16]
    path = Path.home() / ".cache" / "rltraining-tests" / digest / FILE
    if not path.exists():
        compile_gate(path, SOURCE)
    return path


def load(path: str) -> Any:
    """The compiled module."""
    return import_from(Path(path), "raw_call._gate")
