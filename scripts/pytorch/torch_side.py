"""PyTorch's side: starts the processes of a run (worker.py) and reads what they leave."""
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, List

import torch

from pytorch.faults import FAILED_RANK, Fault

SCRIPTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TIME_LIMIT = 900.0  # seconds of a run; DistributedDataParallel waits for ever when a peer has died


def environment(rank: int, world: int) -> Dict[str, str]:
    """One thread a process, and gloo on the loopback device wherever the host's name leads."""
    return {**os.environ, "PYTHONPATH": SCRIPTS, "PYTHONDONTWRITEBYTECODE": "1", "RANK": str(rank),
            "WORLD_SIZE": str(world), "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo")}


def wait_for(processes: List[subprocess.Popen], deadline: float) -> None:
    """Until all are gone; one that fails ends the others."""
    running = list(processes)
    while running:
        for process in list(running):
            code = process.poll()
            if code is not None:
                running.remove(process)
            if code not in (None, 0):
                raise Fault(FAILED_RANK, f"PyTorch, rank {processes.index(process)} of {len(processes)}: exit {code}")
        if time.monotonic() > deadline:
            raise Fault(FAILED_RANK, f"PyTorch, {len(processes)} processes: no end after {TIME_LIMIT:.0f} s")
        time.sleep(0.01)


def run(world: int, options: Dict[str, Any]) -> List[Dict[str, Any]]:
    """What each rank left."""
    with tempfile.TemporaryDirectory(prefix="lockstep-pytorch-") as out:
        words = [sys.executable, "-m", "pytorch.worker", json.dumps({**options, "out": out})]
        processes: List[subprocess.Popen] = []
        try:
            for rank in range(world):
                processes.append(subprocess.Popen(words, env=environment(rank, world), stdin=subprocess.DEVNULL))
            wait_for(processes, time.monotonic() + TIME_LIMIT)
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        return [torch.load(os.path.join(out, f"rank-{rank}.pt"), weights_only=True) for rank in range(world)]


def train(network: str, dtype: str, world: int, data: str, steps: int, keep_every: int) -> Dict[str, Any]:
    """Losses (mean over ranks), gradients of the first step, states before every keep_every-th step."""
    ranks = run(world, {"network": network, "dtype": dtype, "data": data, "steps": steps, "keep_every": keep_every,
                        "shuffle": True, "channels_last": False, "measure": False})
    losses = [sum(values) / world for values in zip(*(rank["losses"].tolist() for rank in ranks))]
    if len(losses) != steps:
        raise Fault(FAILED_RANK, f"PyTorch made {len(losses)} steps of {network} instead of {steps}")
    return {**ranks[0], "losses": losses}


def step_seconds(network: str, world: int, data: str, channels_last: bool) -> List[float]:
    """Seconds of every batch of the data, the slowest rank's of each."""
    ranks = run(world, {"network": network, "dtype": "float32", "data": data, "shuffle": False,
                        "channels_last": channels_last, "measure": True})
    return [max(values) for values in zip(*(rank["seconds"].tolist() for rank in ranks))]
