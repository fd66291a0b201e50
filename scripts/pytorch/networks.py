"""The sources' networks, and a wider one, as their programs write them."""
from dataclasses import dataclass
from typing import Callable, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import nn


class SeedCnn(nn.Module):
    """Two convolutions and two linear layers. The source's widths are 10, 20 and 50."""

    def __init__(self, first: int = 10, second: int = 20, hidden: int = 50) -> None:
        super().__init__()
        self.features = second * 4 * 4
        self.conv1 = nn.Conv2d(1, first, kernel_size=5)
        self.conv2 = nn.Conv2d(first, second, kernel_size=5)
        self.fc1 = nn.Linear(self.features, hidden)
        self.fc2 = nn.Linear(hidden, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        x = x.reshape(-1, self.features)  # the source's view(); that of channels_last is no view
        x = F.relu(self.fc1(x))
        return F.log_softmax(self.fc2(x), dim=1)


class SeedConv(nn.Module):
    """One convolution and one linear layer, with the pool that its 1440 features need."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, kernel_size=5)
        self.fc = nn.Linear(1440, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.flatten(F.max_pool2d(self.conv1(x), 2), 1))


@dataclass(frozen=True)
class Network:
    make: Callable[[], nn.Module]
    normalize: Optional[Tuple[float, float]]  # Normalize's mean and deviation; None: ToTensor alone
    option: str  # Lockstep's --model


WIDE_SPEC = "conv 20 k5; maxpool 2; relu; conv 50 k5; maxpool 2; relu; flatten; linear 500; relu; linear 10"

NETWORKS = {
    "seed-cnn": Network(SeedCnn, None, "seed-cnn"),
    "seed-conv": Network(SeedConv, (0.1307, 0.3081), "seed-conv"),
    "seed-cnn-wide": Network(lambda: SeedCnn(20, 50, 500), None, WIDE_SPEC),
}
SOURCES = ("seed-cnn", "seed-conv")  # the networks of the sources' programs

# What both sides train with, in the sources and by default in Lockstep.
SEED, BATCH, LR, MOMENTUM = 0, 64, 0.01, 0.5
