"""One process of the sources' programs: PyTorch trains, alone or as a rank of DistributedDataParallel over gloo.

Started by torch_side.py as a module, with RANK, WORLD_SIZE and the options as JSON; writes one file a rank.
"""
import json
import os
import sys
import time
from typing import Any, Dict

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from pytorch.images import read_set, to_tensors
from pytorch.networks import BATCH, LR, MOMENTUM, NETWORKS, SEED


def batches(options: Dict[str, Any], rank: int, world: int) -> Any:
    """The sources' loader: a DistributedSampler, one loader a process."""
    images, labels = read_set(options["data"])
    x, y = to_tensors(images, labels, NETWORKS[options["network"]].normalize)
    dataset = TensorDataset(x, y)
    sampler = DistributedSampler(dataset, num_replicas=world, rank=rank, seed=SEED, shuffle=options["shuffle"])
    sampler.set_epoch(0)
    return DataLoader(dataset, batch_size=BATCH, sampler=sampler)


def train(options: Dict[str, Any], net: torch.nn.Module, inner: torch.nn.Module, loader: Any) -> Dict[str, Any]:
    """Losses of the steps, gradients of the first, and parameters before every so many steps."""
    optimizer = torch.optim.SGD(net.parameters(), lr=LR, momentum=MOMENTUM)
    criterion = torch.nn.CrossEntropyLoss()
    dtype = next(inner.parameters()).dtype
    result: Dict[str, Any] = {"losses": [], "states": {}, "gradients": {}}
    for step, (x, y) in enumerate(loader):
        if step == options["steps"]:
            break
        if step % options["keep_every"] == 0:
            result["states"][step] = {name: value.clone() for name, value in inner.state_dict().items()}
        optimizer.zero_grad()
        loss = criterion(net(x.to(dtype)), y)
        loss.backward()
        if step == 0:
            result["gradients"] = {name: p.grad.clone() for name, p in inner.named_parameters()}
        optimizer.step()
        result["losses"].append(loss.item())
    return result


def measure(options: Dict[str, Any], net: torch.nn.Module, loader: Any, world: int) -> Dict[str, Any]:
    """Seconds of each step: batches are tensors in memory, all ranks start together."""
    optimizer = torch.optim.SGD(net.parameters(), lr=LR, momentum=MOMENTUM)
    criterion = torch.nn.CrossEntropyLoss()
    layout = torch.channels_last if options["channels_last"] else torch.contiguous_format
    ready = [(x.contiguous(memory_format=layout), y) for x, y in loader]
    seconds = []
    for x, y in ready:
        if world > 1:
            dist.barrier()
        start = time.perf_counter()
        optimizer.zero_grad()
        criterion(net(x), y).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    return {"seconds": seconds}


def main() -> None:
    options = json.loads(sys.argv[1])
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    inner = NETWORKS[options["network"]].make()
    inner = inner.to(torch.float64) if options["dtype"] == "float64" else inner
    inner = inner.to(memory_format=torch.channels_last) if options["channels_last"] else inner
    net: torch.nn.Module = inner
    if world > 1:
        dist.init_process_group("gloo", init_method=f"file://{options['out']}/store", rank=rank, world_size=world)
        net = DistributedDataParallel(inner)
    loader = batches(options, rank, world)
    result = measure(options, net, loader, world) if options["measure"] else train(options, net, inner, loader)
    for name, values in result.items():  # tensors alone: what a weights_only load takes
        result[name] = torch.tensor(values, dtype=torch.float64) if isinstance(values, list) else values
    torch.save(result, os.path.join(options["out"], f"rank-{rank}.pt"))
    if world > 1:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
