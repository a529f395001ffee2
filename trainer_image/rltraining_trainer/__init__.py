"""Learner and sampler of an RLTrainingJob."""

import ctypes
import os
from contextlib import suppress
from pathlib import Path

# torch reads it while it loads: without it, every lost client prints a C++ warning.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

# Loaded before torch, for which it replaces a function: see frame_guard.c. Without a compiler there is none.
with suppress(OSError):
    ctypes.CDLL(str(Path(__file__).with_name("transport") / "libframe_guard.so"), mode=ctypes.RTLD_GLOBAL)
