#!/usr/bin/env python3
"""Writes layers.h: what PyTorch gives for batch normalisation and average pooling, in float64.

Run with PyTorch 1.13 (Debian: python3-torch): ./layers.py > layers.h
"""
import torch

torch.set_default_dtype(torch.float64)


def array(name, tensor):
    values = tensor.detach().flatten().tolist()
    print(f"static const double {name}[{len(values)}] = {{")
    for at in range(0, len(values), 4):
        print("    " + " ".join(f"{v!r}," for v in values[at:at + 4]))
    print("};")


def formula(count, a, b, m):
    """Small dyadic values without a pattern that a layout fault would keep."""
    return torch.tensor([((a * i * i + b * i) % m - m // 2) / 8 for i in range(count)])


def batchnorm(name, module, shape):
    """Two training steps on different inputs, backward of the second, then evaluation."""
    count = torch.Size(shape).numel()
    first = formula(count, 7, 3, 31).reshape(shape)
    x = formula(count, 5, 11, 37).reshape(shape).requires_grad_()
    dy = formula(count, 3, 13, 29).reshape(shape)
    with torch.no_grad():
        module.weight.copy_(formula(module.num_features, 1, 5, 17) + 1.5)
        module.bias.copy_(formula(module.num_features, 2, 3, 13))
    module(first)
    y = module(x)
    y.backward(dy)
    array(f"{name}_first", first)
    array(f"{name}_x", x)
    array(f"{name}_dy", dy)
    array(f"{name}_weight", module.weight)
    array(f"{name}_bias", module.bias)
    array(f"{name}_y", y)
    array(f"{name}_dx", x.grad)
    array(f"{name}_dweight", module.weight.grad)
    array(f"{name}_dbias", module.bias.grad)
    array(f"{name}_running_mean", module.running_mean)
    array(f"{name}_running_var", module.running_var)
    module.eval()
    array(f"{name}_evaluated", module(x))


def avgpool(name, module, shape):
    count = torch.Size(shape).numel()
    x = formula(count, 5, 11, 37).reshape(shape).requires_grad_()
    y = module(x)
    dy = formula(y.numel(), 3, 13, 29).reshape(y.shape)
    y.backward(dy)
    array(f"{name}_x", x)
    array(f"{name}_dy", dy)
    array(f"{name}_y", y)
    array(f"{name}_dx", x.grad)


print("/* Made by layers.py with PyTorch 1.13. */")
print("#ifndef LS_TESTS_REFERENCE_GOLDEN_LAYERS_H")
print("#define LS_TESTS_REFERENCE_GOLDEN_LAYERS_H")
batchnorm("norm2d", torch.nn.BatchNorm2d(2), (3, 2, 2, 3))
batchnorm("norm1d", torch.nn.BatchNorm1d(3, eps=1e-3, momentum=0.25), (5, 3))
avgpool("pool2", torch.nn.AvgPool2d(2), (2, 2, 3, 5))
avgpool("pool3", torch.nn.AvgPool2d(3, stride=2), (1, 2, 6, 5))
print("#endif")
