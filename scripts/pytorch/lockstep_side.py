"""Lockstep's side: starts the program and reads what it leaves."""
import json
import os
import subprocess
import tempfile
from typing import Any, Dict, List, Optional

import torch

from pytorch.faults import BAD_INPUT, FAILED_RANK, Fault
from pytorch.networks import BATCH, LR, MOMENTUM, NETWORKS, SEED

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILDS = ("build/vgpu/lockstep", "build/cuda/lockstep")

# Implementations to hold against PyTorch's world size: what a rank of PyTorch does, these do with so many devices.
IMPLS = {1: (("single", 1), ("dp", 2)), 2: (("ddp", 2), ("mpi", 2))}


def find(path: Optional[str]) -> str:
    """The program: path, $LOCKSTEP or a build in this tree."""
    candidates = [path or os.environ.get("LOCKSTEP")]
    if candidates[0] is None:
        candidates = [os.path.join(ROOT, build) for build in BUILDS]
    for candidate in candidates:
        if candidate and os.access(candidate, os.X_OK) and os.path.isfile(candidate):
            return os.path.abspath(candidate)
    raise Fault(BAD_INPUT, f"no program at {' or '.join(map(str, candidates))}; build it (cmake --preset vgpu && "
                           "cmake --build --preset vgpu), or say --lockstep FILE")


def call(program: str, words: List[str]) -> str:
    """Runs it; what it printed."""
    done = subprocess.run([program, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        code = BAD_INPUT if done.returncode == BAD_INPUT else FAILED_RANK
        raise Fault(code, f"exit {done.returncode} of {' '.join([program, *words])}: {done.stderr.strip()}")
    return done.stdout


def train(program: str, network: str, dtype: str, impl: str, devices: int, data: str, steps: int,
          extra: List[str]) -> Dict[str, Any]:
    """The row of a run. dp splits PyTorch's batch, the others have a loader with such a batch on every device."""
    batch = ["--global-batch", str(BATCH)] if impl == "dp" else ["--batch", str(BATCH)]
    with tempfile.TemporaryDirectory(prefix="lockstep-pytorch-") as folder:
        out = os.path.join(folder, "run.json")
        call(program, ["train", "--impl", impl, "--devices", str(devices), "--model", NETWORKS[network].option,
                       "--data", f"idx:{data}", "--dtype", dtype, "--seed", str(SEED), "--lr", str(LR), "--momentum",
                       str(MOMENTUM), "--steps", str(steps), "--no-baseline", "--json", out, *batch, *extra])
        with open(out, encoding="utf-8") as file:
            return json.load(file)


def losses(program: str, network: str, dtype: str, impl: str, devices: int, data: str, steps: int,
           extra: List[str]) -> List[float]:
    """The loss of every step, before its update, mean over ranks."""
    row = train(program, network, dtype, impl, devices, data, steps, ["--log-every", "1", *extra])
    if len(row["log"]) != steps:
        raise Fault(FAILED_RANK, f"{impl} logged {len(row['log'])} losses in {steps} steps")
    return [entry["loss"] for entry in row["log"]]


def saved(option: str, program: str, network: str, dtype: str, impl: str, devices: int, data: str,
          steps: int) -> Dict[str, torch.Tensor]:
    """What --save or --save-grads writes after so many steps."""
    with tempfile.TemporaryDirectory(prefix="lockstep-pytorch-") as folder:
        path = os.path.join(folder, "saved.pth")
        train(program, network, dtype, impl, devices, data, steps, ["--log-every", "0", option, path])
        return torch.load(path, weights_only=True)


def order(program: str, samples: int, world: int, epoch: int) -> List[List[int]]:
    """The samples of each rank."""
    text = call(program, ["sampler", "--n", str(samples), "--world", str(world), "--epoch", str(epoch), "--seed",
                          str(SEED)])
    return [[int(word) for word in line.split(":")[1].split()] for line in text.splitlines()]


def step_seconds(program: str, network: str, impl: str, devices: int, data: str, steps: int) -> List[float]:
    """Seconds of every step, the slowest rank's of each. Batches are in memory before a step's time begins."""
    row = train(program, network, "float32", impl, devices, data, steps,
                ["--time-steps", "--log-every", "0", "--no-shuffle", "--loader-threads", "0"])
    return [max(values) for values in zip(*(rank["step_seconds"] for rank in row["rank_results"]))]
