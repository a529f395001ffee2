"""How long the tests of `make soak` run: a factor for random examples and kills."""

from __future__ import annotations

import os

SOAK = int(os.environ.get("RLTRAINING_SOAK", "1"))
