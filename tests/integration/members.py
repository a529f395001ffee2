"""The program that forks members of every kind: started once for all tests of a worker."""

from __future__ import annotations

import rltraining_trainer  # noqa: F401 - before torch, as in a pod

# isort: split
import group_members
import replay_members
import transport_members

if __name__ == "__main__":
    transport_members.ROLES |= group_members.ROLES | replay_members.ROLES
    transport_members.main()
