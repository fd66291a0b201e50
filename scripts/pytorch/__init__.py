"""The parts of scripts/compare_pytorch.py: PyTorch's side, Lockstep's side, what is compared, golden values, speed."""
