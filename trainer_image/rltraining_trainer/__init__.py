"""The trainer of an RLTrainingJob: learners, samplers and replay."""

import ctypes
import os
from contextlib import suppress
from pathlib import Path

# torch reads this when it is imported. Otherwise every lost client prints a C++ warning.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

# Load the library before torch, because it replaces a function of torch: see frame_guard.c. Without
# a compiler it does not exist.
with suppress(OSError):
    ctypes.CDLL(str(Path(__file__).with_name("transport") / "libframe_guard.so"), mode=ctypes.RTLD_GLOBAL)
