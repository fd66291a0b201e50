"""Speed beside PyTorch's: ratios from interleaved runs.

A round starts every contender of a group once, in fresh processes; rounds go through the orders of a cyclic Latin
square whose first line and sequence of lines are random, so that a drift of the machine meets all alike. A run is one
figure: the median of its steps after a warm-up, each step the slowest rank's time, with batches in memory before it
begins and all ranks starting together. A ratio is the median over rounds of the logarithm of Lockstep's rate over
PyTorch's, and its interval that of the sign test, which assumes no distribution.
"""
import math
import os
import random
import statistics
from dataclasses import asdict, dataclass
from typing import Any, Callable, Dict, Iterator, List, Tuple

import numpy as np

from pytorch import lockstep_side, torch_side
from pytorch.images import write_set
from pytorch.networks import BATCH
from pytorch.rounds import latin_orders, sign_test_interval

WARMUP = 20  # steps of a run before those that are timed
# Of Lockstep as many as take it about as long as PyTorch takes for its own: the machine's speed changes within tenths of a second.
TIMED_LOCKSTEP, TIMED_PYTORCH = 400, 100


@dataclass(frozen=True)
class Contender:
    name: str
    timed: int  # steps
    run: Callable[[str, str], List[float]]  # (program, data) -> seconds of each step


@dataclass(frozen=True)
class Group:
    what: str
    network: str
    world: int
    ours: Contender
    theirs: Tuple[Tuple[Contender, float], ...]  # with what Lockstep's rate is to be of theirs, at least


@dataclass(frozen=True)
class Ratio:
    what: str
    against: str
    ours: float  # samples/s
    theirs: float
    ratio: float
    low: float
    high: float
    at_least: float
    rounds: int

    @property
    def passed(self) -> bool:
        return self.low >= self.at_least

    def as_json(self) -> Dict[str, Any]:
        return {**asdict(self), "status": "PASSED" if self.passed else "FAILED"}


def lockstep(network: str, impl: str, devices: int) -> Contender:
    return Contender(f"lockstep {impl}", TIMED_LOCKSTEP, lambda program, data: lockstep_side.step_seconds(
        program, network, impl, devices, data, WARMUP + TIMED_LOCKSTEP))


def pytorch(name: str, network: str, world: int, channels_last: bool = False) -> Contender:
    return Contender(name, TIMED_PYTORCH,
                     lambda program, data: torch_side.step_seconds(network, world, data, channels_last))


GROUPS = (
    Group("seed-cnn, 1 device", "seed-cnn", 1, lockstep("seed-cnn", "single", 1),
          ((pytorch("1 thread", "seed-cnn", 1), 6), (pytorch("1 thread, channels_last", "seed-cnn", 1, True), 3))),
    Group("seed-conv, 1 device", "seed-conv", 1, lockstep("seed-conv", "single", 1),
          ((pytorch("1 thread", "seed-conv", 1), 5),)),
    Group("seed-cnn 20/50/500, 1 device", "seed-cnn-wide", 1, lockstep("seed-cnn-wide", "single", 1),
          ((pytorch("1 thread", "seed-cnn-wide", 1), 3),)),
    Group("seed-cnn, ddp, 2 devices", "seed-cnn", 2, lockstep("seed-cnn", "ddp", 2),
          ((pytorch("DDP over gloo, 2 processes", "seed-cnn", 2), 7),)),
)


def rate(group: Group, contender: Contender, program: str, data: str) -> float:
    """Samples a second of one run, all ranks together."""
    seconds = contender.run(program, data)[WARMUP:]
    return group.world * BATCH / statistics.median(seconds)


def images_for(timed: int, world: int, folder: str, images: np.ndarray, labels: np.ndarray) -> str:
    """The folder of as many images as so many timed steps take."""
    count = (WARMUP + timed) * BATCH * world
    return write_set(os.path.join(folder, f"speed-{world}-{timed}"), images[:count], labels[:count])


def measure_group(group: Group, program: str, folder: str, images: np.ndarray, labels: np.ndarray, rounds: int,
                  draw: random.Random) -> Iterator[Ratio]:
    contenders = [group.ours, *(contender for contender, _ in group.theirs)]
    data = {timed: images_for(timed, group.world, folder, images, labels)
            for timed in {contender.timed for contender in contenders}}
    rates: List[List[float]] = [[] for _ in contenders]
    for order in latin_orders(len(contenders), rounds, draw):
        for place in order:
            contender = contenders[place]
            rates[place].append(rate(group, contender, program, data[contender.timed]))
    for place, (contender, at_least) in enumerate(group.theirs, 1):
        logs = [math.log(a / b) for a, b in zip(rates[0], rates[place])]
        low, high = sign_test_interval(logs)
        yield Ratio(group.what, contender.name, statistics.median(rates[0]), statistics.median(rates[place]),
                    math.exp(statistics.median(logs)), math.exp(low), math.exp(high), at_least, rounds)


def measure(program: str, folder: str, images: np.ndarray, labels: np.ndarray, rounds: int) -> Iterator[Ratio]:
    draw = random.Random()
    for group in GROUPS:
        yield from measure_group(group, program, folder, images, labels, rounds, draw)
