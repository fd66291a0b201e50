#!/usr/bin/python3
"""Holds Lockstep against PyTorch: both train the sources' networks on the same images, and what comes out is compared.

The default compares initial values, sample order, gradients and losses, single and on two ranks, in float32 and
float64. --speed measures instead how fast the two are. Exit codes: 0 all within bounds, 1 something is not, 2 wrong
usage or bad input, 3 PyTorch is missing or a run failed. See docs/compare-pytorch.md.
"""
import argparse
import importlib.util
import json
import os
import sys
import tempfile
from typing import Any, Dict, List

from pytorch.faults import BAD_INPUT, FAILED_RANK, Fault
from pytorch.rounds import LEAST_ROUNDS, ROUNDS

# What needs torch is imported once it is known to be there.


def parse(words: List[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compares Lockstep with PyTorch.")
    parser.add_argument("--lockstep", metavar="FILE", help="the program [$LOCKSTEP, else build/*/lockstep]")
    parser.add_argument("--data", metavar="DIR", default="/usr/share/datasets/fashion-mnist",
                        help="IDX files of the training set [%(default)s]")
    parser.add_argument("--json", metavar="FILE", help="the table as JSON")
    parser.add_argument("--goldens", metavar="DIR", help="write PyTorch's values for tests without PyTorch")
    parser.add_argument("--speed", action="store_true", help="measure speed instead of comparing values")
    parser.add_argument("--rounds", metavar="N", type=int, default=ROUNDS,
                        help=f"of --speed, {LEAST_ROUNDS} at least [%(default)s]")
    arguments = parser.parse_args(words)
    if arguments.rounds < LEAST_ROUNDS:
        parser.error(f"--rounds: expected {LEAST_ROUNDS} or more, found {arguments.rounds}; fewer give no interval")
    if arguments.speed and arguments.goldens:
        parser.error("--goldens does not go with --speed")
    return arguments


def compare(arguments: argparse.Namespace, program: str, folder: str) -> List[Dict[str, Any]]:
    """The table of compared values, line by line as they come."""
    from pytorch import checks, goldens
    from pytorch.images import read_set, write_set

    images, labels = read_set(arguments.data)
    setting = checks.Setting(program, folder, write_set(os.path.join(folder, "all"), images, labels), images, labels)
    layout = "{:<17} {:<9} {:<7} {:<10} {:<18} {:>9} {:>7}  {:<6}  {}"
    titles = ("check", "network", "dtype", "lockstep", "pytorch", "observed", "bound", "status", "detail")
    print(layout.format(*titles))
    rows: List[checks.Row] = []

    def show(row: checks.Row) -> None:
        rows.append(row)
        print(layout.format(row.what, row.network, row.dtype, row.impl, row.against, f"{row.observed:.2g}",
                            f"{row.bound:.2g}", "PASSED" if row.passed else "FAILED", row.detail), flush=True)

    for row in checks.check_order(setting):
        show(row)
    for network, dtype, world, run in checks.torch_runs(setting):
        for row in checks.check_training(setting, network, dtype, world, run):
            show(row)
        if dtype == "float32":
            for row in checks.check_single_steps(setting, network, world, run):
                show(row)
        elif arguments.goldens:
            goldens.write(arguments.goldens, network, world, len(images), run)
    return [row.as_json() for row in rows]


def measure(arguments: argparse.Namespace, program: str, folder: str) -> List[Dict[str, Any]]:
    """The table of ratios, line by line as they come."""
    from pytorch import speed
    from pytorch.images import read_set

    images, labels = read_set(arguments.data)
    layout = "{:<29} {:<27} {:>10} {:>10} {:>6}  {:<13} {:>8}  {}"
    print(layout.format("samples/s, batch 64 a device", "pytorch", "lockstep", "pytorch", "ratio", "95 % interval",
                        "at least", "status"))
    rows = []
    for row in speed.measure(program, folder, images, labels, arguments.rounds):
        rows.append(row.as_json())
        print(layout.format(row.what, row.against, f"{row.ours:.0f}", f"{row.theirs:.0f}", f"{row.ratio:.2f}",
                            f"{row.low:.2f} .. {row.high:.2f}", f"{row.at_least:g}",
                            "PASSED" if row.passed else "FAILED"), flush=True)
    print(f"{arguments.rounds} rounds of fresh processes; load of the machine {os.getloadavg()[0]:.1f} on "
          f"{os.cpu_count()} cores")
    return rows


def require_packages() -> None:
    missing = [name for name in ("torch", "numpy") if importlib.util.find_spec(name) is None]
    if missing:
        raise Fault(FAILED_RANK, f"{sys.executable} has no {' and no '.join(missing)}; run: apt-get install -y "
                                 "python3-torch, and use /usr/bin/python3")


def require_writable(path: str) -> None:
    """Before minutes of work are lost."""
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.access(folder, os.W_OK):
        raise Fault(BAD_INPUT, f"cannot write {path}: no writable folder {folder}, or a folder itself")


def run(arguments: argparse.Namespace) -> int:
    require_packages()
    import torch
    from pytorch import lockstep_side

    program = lockstep_side.find(arguments.lockstep)
    if arguments.json:
        require_writable(arguments.json)
    print(f"PyTorch {torch.__version__}, {program}", flush=True)
    with tempfile.TemporaryDirectory(prefix="lockstep-pytorch-") as folder:
        rows = (measure if arguments.speed else compare)(arguments, program, folder)
    if arguments.json:
        with open(arguments.json, "w", encoding="ascii") as file:
            json.dump({"torch": torch.__version__, "rows": rows}, file, indent=1)
            file.write("\n")
    failed = sum(row["status"] == "FAILED" for row in rows)
    print(f"{len(rows) - failed} passed, {failed} failed")
    return 1 if failed else 0


def main() -> int:
    try:
        return run(parse(sys.argv[1:]))
    except Fault as fault:
        print(f"compare_pytorch: {fault}", file=sys.stderr)
        return fault.code
    except KeyboardInterrupt:
        print("compare_pytorch: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
