"""Uses one torch thread, as the roles do. On a busy machine, several torch threads wait for each other."""

import torch

torch.set_num_threads(1)
