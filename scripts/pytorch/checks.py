"""What is compared, with its bounds.

Initial values and order: exact. Gradients, relative per tensor in the 2-norm: float64 1e-12, which correct code meets
by two orders while the smallest fault seen is 1e-6; float32 1e-5, PyTorch's own convolution engines being up to 2.4e-6
apart. Losses: float64 1e-10 over 200 steps, a reordered sum drifting by 1e-15; float32 2e-6, four units in the last
place of a loss near 2.3 from each side, over 10 steps, and for a single step from PyTorch's own parameters later on,
since float32 runs part from one another after tens of steps.
"""
import os
from dataclasses import asdict, dataclass
from typing import Any, Dict, Iterator, List, Tuple

import numpy as np
import torch
from torch.utils.data.distributed import DistributedSampler

from pytorch import lockstep_side, torch_side
from pytorch.images import write_set
from pytorch.networks import BATCH, SEED, SOURCES

BOUND_GRADIENT = {"float32": 1e-5, "float64": 1e-12}
BOUND_LOSS = {"float32": 2e-6, "float64": 1e-10}
STEPS = {"float32": 10, "float64": 200}
EVERY, LAST = 10, 200  # single steps from PyTorch's parameters: at steps 0, 10, ..., 200
WORLDS, EPOCHS = (1, 2, 3, 7), (0, 1, 2)


@dataclass(frozen=True)
class Row:
    what: str
    network: str
    dtype: str
    impl: str
    against: str
    observed: float
    bound: float
    detail: str

    @property
    def passed(self) -> bool:
        return self.observed <= self.bound  # a NaN is not

    def as_json(self) -> Dict[str, Any]:
        return {**asdict(self), "status": "PASSED" if self.passed else "FAILED"}


@dataclass(frozen=True)
class Setting:
    program: str
    folder: str  # for what both sides read; the caller removes it
    data: str  # the whole training set, unpacked
    images: np.ndarray
    labels: np.ndarray


def torch_order(samples: int, world: int, epoch: int) -> List[List[int]]:
    """DistributedSampler's list of each rank."""
    ranks = []
    for rank in range(world):
        sampler = DistributedSampler(range(samples), num_replicas=world, rank=rank, seed=SEED)
        sampler.set_epoch(epoch)
        ranks.append(list(sampler))
    return ranks


def check_order(setting: Setting) -> Iterator[Row]:
    samples = len(setting.images)
    for world in WORLDS:
        different = 0
        for epoch in EPOCHS:
            ours = lockstep_side.order(setting.program, samples, world, epoch)
            theirs = torch_order(samples, world, epoch)
            different += int(np.not_equal(ours, theirs).sum()) if np.shape(ours) == np.shape(theirs) else samples
        yield Row("sample order", "-", "-", f"sampler x{world}", "DistributedSampler", different, 0,
                  f"epochs {EPOCHS[0]}..{EPOCHS[-1]}, {samples} samples: places that differ")


def different_bits(ours: Dict[str, torch.Tensor], theirs: Dict[str, torch.Tensor]) -> int:
    """Elements whose bits differ; all of a tensor that is missing, or of another shape or type."""
    count = 0
    for name in ours.keys() | theirs.keys():
        a, b = ours.get(name), theirs.get(name)
        if a is None or b is None or a.shape != b.shape or a.dtype != b.dtype:
            count += max(t.numel() for t in (a, b) if t is not None)
            continue
        bits = torch.int64 if a.dtype == torch.float64 else torch.int32
        count += int((a.contiguous().view(bits) != b.contiguous().view(bits)).sum())
    return count


def worst_tensor(ours: Dict[str, torch.Tensor], theirs: Dict[str, torch.Tensor]) -> Tuple[float, str]:
    """The largest relative difference of a tensor in the 2-norm, and its name."""
    if ours.keys() != theirs.keys():
        return float("inf"), "other names"
    errors = [(float((ours[name].double() - g.double()).norm() / g.double().norm()), name)
              for name, g in theirs.items()]
    return max(errors, key=lambda entry: entry[0] if entry[0] == entry[0] else float("inf"))


def largest_difference(ours: List[float], theirs: List[float]) -> Tuple[float, int]:
    """And its place."""
    errors = np.abs(np.subtract(ours, theirs))
    place = int(np.argmax(np.where(np.isnan(errors), np.inf, errors)))
    return float(errors[place]), place


def step_data(setting: Setting, world: int, step: int) -> str:
    """The samples of one step of all ranks as a data set: unshuffled, each rank takes what it took there."""
    ranks = [order[step * BATCH:(step + 1) * BATCH] for order in torch_order(len(setting.images), world, 0)]
    indices = np.array(ranks).T.reshape(-1)  # rank r of W takes r, r + W, ...
    return write_set(f"{setting.folder}/step", setting.images[indices], setting.labels[indices])


def check_single_steps(setting: Setting, network: str, world: int, torch_run: Dict[str, Any]) -> Iterator[Row]:
    """One step of each implementation from PyTorch's own parameters."""
    ours: Dict[str, List[float]] = {impl: [] for impl, _ in lockstep_side.IMPLS[world]}
    steps = range(0, LAST + 1, EVERY)
    state = os.path.join(setting.folder, "state.pth")
    for step in steps:
        torch.save(torch_run["states"][step], state)
        data = step_data(setting, world, step)
        for impl, devices in lockstep_side.IMPLS[world]:
            ours[impl] += lockstep_side.losses(setting.program, network, "float32", impl, devices, data, 1,
                                               ["--no-shuffle", "--load", state])
    theirs = [torch_run["losses"][step] for step in steps]
    for impl, devices in lockstep_side.IMPLS[world]:
        error, place = largest_difference(ours[impl], theirs)
        yield Row("loss of one step", network, "float32", f"{impl} x{devices}", against(world), error,
                  BOUND_LOSS["float32"], f"PyTorch's parameters at steps 0..{LAST}; worst at {steps[place]}")


def against(world: int) -> str:
    return "one process" if world == 1 else f"DDP, {world} processes"


def check_training(setting: Setting, network: str, dtype: str, world: int,
                   torch_run: Dict[str, Any]) -> Iterator[Row]:
    """Initial values, gradients of the first step, losses of the first steps, for each implementation."""
    for impl, devices in lockstep_side.IMPLS[world]:
        name = f"{impl} x{devices}"
        common = (setting.program, network, dtype, impl, devices, setting.data)
        initial = lockstep_side.saved("--save", *common, 0)
        different = different_bits(initial, torch_run["states"][0])
        yield Row("initial values", network, dtype, name, against(world), different, 0, "elements whose bits differ")
        error, tensor = worst_tensor(lockstep_side.saved("--save-grads", *common, 1), torch_run["gradients"])
        yield Row("gradients", network, dtype, name, against(world), error, BOUND_GRADIENT[dtype],
                  f"first step, relative; worst {tensor}")
        count = STEPS[dtype]
        error, place = largest_difference(lockstep_side.losses(*common, count, []), torch_run["losses"][:count])
        yield Row("losses", network, dtype, name, against(world), error, BOUND_LOSS[dtype],
                  f"{count} steps; worst at {place}")


def torch_runs(setting: Setting) -> Iterator[Tuple[str, str, int, Dict[str, Any]]]:
    """Every training run of PyTorch: network, dtype, world size, what came of it."""
    for network in SOURCES:
        for dtype in STEPS:
            for world in lockstep_side.IMPLS:
                run = torch_side.train(network, dtype, world, setting.data, LAST + 1, EVERY)
                yield network, dtype, world, run
