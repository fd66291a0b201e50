"""Golden values of PyTorch's float64 runs, for tests that have no PyTorch.

A JSON file for each network and world size. Numbers are the shortest decimals that read back as the same double.
"""
import json
import os
from typing import Any, Dict, List

import torch

from pytorch.checks import EPOCHS, STEPS, torch_order
from pytorch.networks import BATCH, LR, MOMENTUM, SEED

ORDER_HEAD = 16  # samples of each rank and epoch


def elements_of(gradient: torch.Tensor) -> Dict[str, float]:
    """First, middle, last and largest element, by flat index."""
    flat = gradient.flatten()
    places = {0, flat.numel() // 2, flat.numel() - 1, int(flat.abs().argmax())}
    return {str(place): float(flat[place]) for place in sorted(places)}


def sampler_lines(samples: int, world: int, epoch: int) -> List[str]:
    """The start of each rank's order as `lockstep sampler --head` prints it."""
    ranks = torch_order(samples, world, epoch)
    return [f"rank {rank}: {' '.join(map(str, order[:ORDER_HEAD]))}" for rank, order in enumerate(ranks)]


def golden(network: str, world: int, samples: int, run: Dict[str, Any]) -> Dict[str, Any]:
    gradients = {name: {"norm": float(g.norm()), "elements": elements_of(g)} for name, g in run["gradients"].items()}
    order = {str(epoch): sampler_lines(samples, world, epoch) for epoch in EPOCHS}
    return {"made_by": "scripts/compare_pytorch.py --goldens", "torch": torch.__version__, "data": "fashion-mnist",
            "network": network, "dtype": "float64", "world": world, "batch": BATCH, "lr": LR, "momentum": MOMENTUM,
            "seed": SEED, "samples": samples,
            "order_head": ORDER_HEAD, "order": order, "gradients": gradients,
            "losses": run["losses"][:STEPS["float64"]]}


def write(folder: str, network: str, world: int, samples: int, run: Dict[str, Any]) -> None:
    """Whole or not at all."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{network}-{world}.json")
    with open(f"{path}.part", "w", encoding="ascii") as file:
        json.dump(golden(network, world, samples, run), file, indent=1)
        file.write("\n")
    os.replace(f"{path}.part", path)
