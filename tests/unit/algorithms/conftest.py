"""One thread, as the roles have it: on machines that have other work, several of torch's wait for each other."""

import torch

torch.set_num_threads(1)
