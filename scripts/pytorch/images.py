"""IDX files: read as torchvision's data sets and transforms do, and written for Lockstep to read."""
import gzip
import os
from typing import Optional, Tuple

import numpy as np
import torch

from pytorch.faults import BAD_INPUT, Fault

DEBIAN_FOLDER = "/usr/share/datasets/fashion-mnist"


def read_idx(path: str, dims: int) -> np.ndarray:
    """The bytes of an IDX file with so many dimensions."""
    with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
        content = file.read()
    header = np.frombuffer(content, ">u4", dims + 1)
    if header[0] != 0x800 + dims or header[1:].prod() != len(content) - header.nbytes:
        raise Fault(BAD_INPUT, f"{path}: expected an IDX file of {dims}-dimensional bytes")
    return np.frombuffer(content, np.uint8, offset=header.nbytes).reshape(header[1:])


def read_set(folder: str) -> Tuple[np.ndarray, np.ndarray]:
    """The training set of a folder, packed or not: images [n][28][28] and labels [n]."""
    ending = "" if os.path.exists(os.path.join(folder, "train-images-idx3-ubyte")) else ".gz"
    try:
        images = read_idx(os.path.join(folder, f"train-images-idx3-ubyte{ending}"), 3)
        return images, read_idx(os.path.join(folder, f"train-labels-idx1-ubyte{ending}"), 1)
    except (OSError, EOFError) as cause:
        raise Fault(BAD_INPUT, f"no training set in {folder}: {cause}; Fashion-MNIST is Debian's package "
                               "dataset-fashion-mnist") from cause


def write_set(folder: str, images: np.ndarray, labels: np.ndarray) -> str:
    """Images and labels as a training set, the first of them as its test set, which keeps evaluation short. Returns the
    folder."""
    os.makedirs(folder, exist_ok=True)
    for split, count in (("train", len(images)), ("t10k", 1)):
        for name, values in (("images-idx3", images[:count]), ("labels-idx1", labels[:count])):
            with open(os.path.join(folder, f"{split}-{name}-ubyte"), "wb") as file:
                file.write(np.array([0x800 + values.ndim, *values.shape], ">u4").tobytes())
                file.write(np.ascontiguousarray(values).tobytes())
    return folder


def to_tensors(images: np.ndarray, labels: np.ndarray,
               normalize: Optional[Tuple[float, float]]) -> Tuple[torch.Tensor, torch.Tensor]:
    """ToTensor and Normalize: float32 [n][1][28][28], int64 [n]."""
    x = torch.from_numpy(images.copy()).unsqueeze(1).to(torch.float32).div(255)
    if normalize is not None:
        mean, std = (torch.as_tensor(value, dtype=torch.float32) for value in normalize)
        x = x.sub_(mean).div_(std)
    return x, torch.from_numpy(labels.astype(np.int64))
