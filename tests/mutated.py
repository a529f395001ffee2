"""Mutates bytes at random, for fuzz tests of ports that strangers can reach."""

from __future__ import annotations

import random


def mutated(content: bytes, rng: random.Random) -> bytes:
    """Returns the content with a few bytes changed, removed, doubled or added."""
    changed = bytearray(content)
    for _ in range(rng.randint(0, 6)):
        i = rng.randrange(len(changed) + 1)
        match rng.randrange(4):
            case 0:
                changed[i : i + 1] = rng.randbytes(1)
            case 1:
                del changed[i : i + rng.randint(1, 8)]
            case 2:
                changed[i:i] = changed[i : i + 8]
            case 3:
                changed[i:i] = rng.randbytes(rng.randint(1, 8))
    return bytes(changed)
