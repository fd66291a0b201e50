#!/usr/bin/env python3
"""What `lockstep sampler` must print, from PyTorch's DistributedSampler.

Reads lines "FILE N WORLD EPOCH SEED SHUFFLE DROP_LAST" (the last two 0 or 1) and writes each answer to its FILE.
The hash in sampler.sh is of the answer to "FILE 60000 7 3 0 1 0" with PyTorch 1.13.
"""
import sys

from torch.utils.data.distributed import DistributedSampler

for line in sys.stdin:
    words = line.split()
    n, world, epoch, seed, shuffle, drop_last = (int(word) for word in words[1:])
    with open(words[0], "w", encoding="ascii") as answer:
        for rank in range(world):
            sampler = DistributedSampler(
                range(n), num_replicas=world, rank=rank, shuffle=bool(shuffle), seed=seed, drop_last=bool(drop_last)
            )
            sampler.set_epoch(epoch)
            print(f"rank {rank}:" + "".join(f" {index}" for index in sampler), file=answer)
