#!/usr/bin/env python3
"""Writes tests/fuzz/corpus/<target>/: small valid and nearly valid files from which the fuzzers start.
Needs python3-torch for the .pth files. The result is committed; run it again after a change here."""
import collections
import gzip
import io
import json
import pathlib
import pickle
import struct
import zipfile

import torch

root = pathlib.Path(__file__).parent / "corpus"


def put(target, name, data):
    folder = root / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def saved(value, **options):
    out = io.BytesIO()
    torch.save(value, out, **options)
    return out.getvalue()


torch.manual_seed(0)
layer = torch.nn.Linear(3, 2)
state = layer.state_dict()
shared = torch.arange(12.0)
values = {
    "linear": state,
    "kinds": {"f64": torch.ones(2, dtype=torch.float64), "f16": torch.ones(3, dtype=torch.float16),
              "bf16": torch.ones(2, dtype=torch.bfloat16), "i64": torch.tensor(7), "empty": torch.ones(0, 2)},
    "views": {"t": shared.view(3, 4).t(), "tail": shared[5:], "step": shared[::2], "expanded": torch.ones(1).expand(1)},
    "wrapped": {"module." + k: v for k, v in state.items()},
    "parameter": collections.OrderedDict(w=torch.nn.Parameter(torch.ones(2))),
    "optimizer": torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9).state_dict(),
    "module": layer,
    "parts": {"epoch": 3, "loss": 0.25, "model": state, "more": [1, 2, (3, None, True)], "large": 1 << 40},
}
for name, value in values.items():
    archive = saved(value)
    put("pth_zip", name + ".pth", archive)
    put("pth_legacy", name + ".pth", saved(value, _use_new_zipfile_serialization=False))
    with zipfile.ZipFile(io.BytesIO(archive)) as entries:
        pickled = [n for n in entries.namelist() if n.endswith("/data.pkl")][0]
        put("pickle", name + ".pkl", entries.read(pickled))
put("pth_zip", "protocol4.pth", saved(state, pickle_protocol=4))
put("pickle", "plain4.pkl", pickle.dumps({"a": [1, 2.5, "x"], "b": (None, True)}, protocol=4))
deflated = io.BytesIO()
with zipfile.ZipFile(io.BytesIO(saved(state))) as entries, zipfile.ZipFile(deflated, "w", zipfile.ZIP_DEFLATED) as out:
    for entry in entries.namelist():
        out.writestr(entry, entries.read(entry))
put("pth_zip", "deflated.pth", deflated.getvalue())


def safetensors(header, data, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


put("safetensors", "two", safetensors({"__metadata__": {"format": "pt"}, "a": entry("F32", [2], 0, 8),
                                       "b": entry("F16", [3, 1], 8, 14)}, bytes(14)))
put("safetensors", "kinds", safetensors({"a": entry("F64", [1], 0, 8), "b": entry("BF16", [2], 8, 12),
                                         "c": entry("I64", [], 12, 20), "d": entry("F32", [0, 4], 20, 20)}, bytes(20)))
put("safetensors", "overlap", safetensors({"a": entry("F32", [2], 0, 8), "b": entry("F32", [1], 4, 8)}, bytes(8)))
put("safetensors", "gap", safetensors({"a": entry("F32", [1], 4, 8)}, bytes(8)))
put("safetensors", "long", safetensors({}, b"", 1 << 40))
put("safetensors", "deep", safetensors(b"{\"a\":" + b"[" * 200 + b"]" * 200 + b"}", b""))

images = struct.pack(">IIII", 0x803, 2, 3, 4) + bytes(range(24))
labels = struct.pack(">II", 0x801, 5) + bytes(5)
put("idx", "images", b"\1" + images)
put("idx", "labels", b"\0" + labels)
put("idx", "images.gz", b"\1" + gzip.compress(images, mtime=0))
put("idx", "labels.gz", b"\0" + gzip.compress(labels, mtime=0))
put("idx", "two-members.gz", b"\0" + gzip.compress(labels[:4], mtime=0) + gzip.compress(labels[4:], mtime=0))
put("idx", "large", b"\1" + struct.pack(">IIII", 0x803, 0xFFFFFFFF, 0xFFFFFFFF, 1))
