"""Learner and sampler of an RLTrainingJob."""

import os

# torch reads it while it loads: without it, every lost client prints a C++ warning.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
