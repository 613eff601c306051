"""Data-parallel training with PyTorch: `init_process_group` uses the variables in the environment.

Writes the ranks that took part and the weights, of rank 0, to the file of its argument.
"""

import json
import os
import sys
from pathlib import Path

import torch
from torch import nn
from torch.distributed import all_gather_object, destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel

init_process_group("gloo")
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
generator = torch.Generator().manual_seed(7)
inputs = torch.randn(64, 4, generator=generator, dtype=torch.float64)
targets = inputs @ torch.arange(4, dtype=torch.float64)
model = DistributedDataParallel(nn.Linear(4, 1, bias=False, dtype=torch.float64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
for _ in range(200):
    optimizer.zero_grad()
    error = model(inputs[rank::size]).squeeze(1) - targets[rank::size]
    (error**2).mean().backward()
    optimizer.step()
taken: list[list[int]] = [[]] * size
all_gather_object(taken, [rank, int(os.environ["HEADGATE_RANK"])])
if rank == 0:
    weights = model.module.weight.detach().squeeze(0).tolist()
    Path(sys.argv[1]).write_text(json.dumps({"ranks": taken, "weights": weights}))
destroy_process_group()
