#!/usr/bin/python3
"""Writes optimizers.h: parameters and losses as PyTorch computes them. Run by hand (Debian's python3-torch, 1.13):
    python3 tests/golden/optimizers.py >tests/golden/optimizers.h
The tests read the header alone."""
import math
import torch

COUNT, STEPS = 11, 12
KEPT = [1, 2, 5, 12]  # the steps whose parameters are written
CASES = [
    ("sgd", torch.optim.SGD, dict(lr=0.05)),
    ("sgd", torch.optim.SGD, dict(lr=0.05, momentum=0.5)),
    ("sgd", torch.optim.SGD, dict(lr=0.05, momentum=0.9, dampening=0.3, weight_decay=0.01)),
    ("sgd", torch.optim.SGD, dict(lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01)),
    ("sgd", torch.optim.SGD, dict(lr=0.05, momentum=0.9, maximize=True)),
    ("sgd", torch.optim.SGD, dict(lr=0.05, weight_decay=0.1, maximize=True)),
    ("adam", torch.optim.Adam, dict(lr=1e-3)),
    ("adam", torch.optim.Adam, dict(lr=0.02, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.05)),
    ("adam", torch.optim.Adam, dict(lr=0.02, amsgrad=True, betas=(0.5, 0.6))),
    ("adam", torch.optim.Adam, dict(lr=0.02, amsgrad=True, maximize=True, weight_decay=0.01)),
    ("adamw", torch.optim.AdamW, dict(lr=1e-3)),
    ("adamw", torch.optim.AdamW, dict(lr=0.02, weight_decay=0.2, betas=(0.7, 0.9), amsgrad=True)),
    ("adamw", torch.optim.AdamW, dict(lr=0.02, maximize=True, eps=1e-2)),
    ("rmsprop", torch.optim.RMSprop, dict(lr=1e-2)),
    ("rmsprop", torch.optim.RMSprop, dict(lr=1e-2, alpha=0.8, eps=1e-2, weight_decay=0.05)),
    ("rmsprop", torch.optim.RMSprop, dict(lr=1e-2, momentum=0.7)),
    ("rmsprop", torch.optim.RMSprop, dict(lr=1e-2, centered=True, alpha=0.9)),
    ("rmsprop", torch.optim.RMSprop, dict(lr=1e-2, centered=True, momentum=0.9, weight_decay=0.01, maximize=True)),
]


def start(i):
    """An exact float32 in (-1, 1)."""
    return ((i * 37 + 11) % 64 - 32 + 0.5) / 32


def gradient(step, i):
    return ((step * 29 + i * 53 + (step * i) % 7 * 5 + 3) % 128 - 64 + 0.25) / 256


def trajectory(make, options, dtype):
    w = torch.tensor([start(i) for i in range(COUNT)], dtype=dtype, requires_grad=True)
    optimizer = make([w], foreach=False, **options) if "foreach" in make.__init__.__code__.co_varnames else make([w], **options)
    rows = []
    for step in range(STEPS):
        w.grad = torch.tensor([gradient(step, i) for i in range(COUNT)], dtype=dtype)
        optimizer.step()
        if step + 1 in KEPT:
            rows.append(w.detach().clone())
    return rows


def c_options(name, o):
    o = dict(o)
    fields = {"lr": o.pop("lr")}
    if name != "sgd":
        fields["eps"] = o.pop("eps", 1e-8)
    if name in ("adam", "adamw"):
        fields["beta1"], fields["beta2"] = o.pop("betas", (0.9, 0.999))
    if name == "adamw":
        fields["weight_decay"] = o.pop("weight_decay", 1e-2)
    if name == "rmsprop":
        fields["alpha"] = o.pop("alpha", 0.99)
    fields.update(o)
    lr = fields.pop("lr")
    text = ", ".join(".%s = %s" % (k, repr(v).lower()) for k, v in fields.items())
    return '"%s", %r, {%s}' % (name, lr, text or "0")


def array(values, render):
    return "{%s}" % ", ".join(render(float(v)) for v in values)


print("/* Made by optimizers.py with PyTorch %s: do not edit. */\n/* clang-format off */" % torch.__version__.split("+")[0])
print("#ifndef LS_TESTS_GOLDEN_OPTIMIZERS_H\n#define LS_TESTS_GOLDEN_OPTIMIZERS_H\n")
print('#include "reference/optimizer.h"\n')
print("enum { GOLDEN_COUNT = %d, GOLDEN_STEPS = %d, GOLDEN_KEPT = %d };" % (COUNT, STEPS, len(KEPT)))
print("static const int golden_kept[GOLDEN_KEPT] = {%s};\n" % ", ".join(map(str, KEPT)))
print("/* Element i starts at golden_start[i]; golden_gradients[s] is its gradient in step s; both exact in float32. */")
print("static const double golden_start[GOLDEN_COUNT] = %s;" % array([start(i) for i in range(COUNT)], repr))
print("static const double golden_gradients[GOLDEN_STEPS][GOLDEN_COUNT] = {")
for s in range(STEPS):
    print("    %s," % array([gradient(s, i) for i in range(COUNT)], repr))
print("};\n")
print("typedef struct golden_trajectory {\n    const char *name;\n    double lr;\n    ls_optimizer_options options;")
print("    double float64[GOLDEN_KEPT][GOLDEN_COUNT]; /* parameters after so many steps */")
print("    float float32[GOLDEN_KEPT][GOLDEN_COUNT];\n} golden_trajectory;\n")
print("static const golden_trajectory golden_trajectories[] = {")
for name, make, options in CASES:
    print("    {%s," % c_options(name, options))
    for dtype in (torch.float64, torch.float32):
        render = repr if dtype == torch.float64 else lambda v: "%.9gf" % v if "." in "%.9g" % v or "e" in "%.9g" % v else "%.9g.0f" % v
        print("     {")
        for row in trajectory(make, options, dtype):
            assert all(math.isfinite(v) for v in row)
            print("      %s," % array(row, render))
        print("     },")
    print("    },")
print("};\n\n#endif")
