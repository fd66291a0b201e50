"""Seconds of a training step of seed-cnn in PyTorch: on a GPU, eager and as a captured CUDA graph, else on one core.

Needs torch alone. Prints a JSON row for each way. The batch lies on the device, as in the step that Lockstep times.
"""
import json
import statistics
import sys
import time
from typing import Callable, List

import torch
from torch import nn

from pytorch.networks import BATCH, LR, MOMENTUM, NETWORKS

WARMUP, TIMED = 20, 100


def seconds_of(step: Callable[[], object], wait: Callable[[], None]) -> List[float]:
    seconds = []
    for _ in range(WARMUP + TIMED):
        wait()
        start = time.perf_counter()
        step()
        wait()
        seconds.append(time.perf_counter() - start)
    return seconds[WARMUP:]


def captured(step: Callable[[], object]) -> Callable[[], object]:
    """The step as a CUDA graph, after some steps on a stream of their own as torch.cuda.graph asks for."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def main() -> int:
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    if on_gpu:  # float32 as Lockstep computes it
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    else:
        torch.set_num_threads(1)
    torch.manual_seed(0)
    net = NETWORKS["seed-cnn"].make().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=LR, momentum=MOMENTUM)
    criterion = nn.CrossEntropyLoss()
    x = torch.rand(BATCH, 1, 28, 28, device=device)
    y = torch.randint(10, (BATCH,), device=device)

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        criterion(net(x), y).backward()
        optimizer.step()

    ways = [("eager", step)]
    if on_gpu:
        ways.append(("graph", captured(step)))
    for name, run in ways:
        seconds = seconds_of(run, torch.cuda.synchronize if on_gpu else lambda: None)
        print(json.dumps({"schema": 1, "kind": "pytorch-step", "torch": torch.__version__, "device": device.type,
                          "way": name, "batch": BATCH, "seconds": statistics.median(seconds), "steps": TIMED}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
