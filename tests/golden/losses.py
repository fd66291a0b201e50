#!/usr/bin/python3
"""Writes losses.h: losses and gradients as PyTorch computes them in float64. Run by hand (Debian's python3-torch, 1.13):
    python3 tests/golden/losses.py >tests/golden/losses.h
The tests read the header alone."""
import torch

BATCH, OUTPUTS = 5, 3


def output(n, c):
    """Exact in float32."""
    return ((n * 31 + c * 17 + 5) % 64 - 32) / 8


def target(n, c):
    return ((n * 13 + c * 29 + 1) % 32 - 16) / 16


LABELS = [0, 2, 1, 1, 0]


def one_hot():
    return torch.nn.functional.one_hot(torch.tensor(LABELS), OUTPUTS).double()


def case(kind, reduction, smoothing, floats):
    z = torch.tensor([[output(n, c) for c in range(OUTPUTS)] for n in range(BATCH)], dtype=torch.float64, requires_grad=True)
    t = torch.tensor([[target(n, c) for c in range(OUTPUTS)] for n in range(BATCH)], dtype=torch.float64) if floats else one_hot()
    if kind == "CROSS_ENTROPY":
        loss = torch.nn.CrossEntropyLoss(reduction=reduction, label_smoothing=smoothing)(z, torch.tensor(LABELS))
    else:
        loss = torch.nn.MSELoss(reduction=reduction)(z, t)
        if kind == "RMSE":
            loss = torch.sqrt(loss)
    loss.backward()
    rows = ", ".join("{%s}" % ", ".join(repr(v) for v in row) for row in z.grad.tolist())
    print("    {{LS_LOSS_%s, LS_LOSS_%s, %r}, %s, %r,\n     {%s}}," %
          (kind, reduction.upper(), smoothing, "true" if floats else "false", loss.item(), rows))


def table(values):
    return "{%s}" % ", ".join("{%s}" % ", ".join(map(repr, row)) for row in values)


print("/* Made by losses.py with PyTorch %s: do not edit. */\n/* clang-format off */" % torch.__version__.split("+")[0])
print("#ifndef LS_TESTS_GOLDEN_LOSSES_H\n#define LS_TESTS_GOLDEN_LOSSES_H\n")
print('#include "reference/loss.h"\n')
print("enum { GOLDEN_BATCH = %d, GOLDEN_OUTPUTS = %d };\n" % (BATCH, OUTPUTS))
print("static const double golden_outputs[GOLDEN_BATCH][GOLDEN_OUTPUTS] = %s;" %
      table([[output(n, c) for c in range(OUTPUTS)] for n in range(BATCH)]))
print("static const float golden_targets[GOLDEN_BATCH][GOLDEN_OUTPUTS] = %s;" %
      table([[target(n, c) for c in range(OUTPUTS)] for n in range(BATCH)]))
print("static const int32_t golden_labels[GOLDEN_BATCH] = {%s};\n" % ", ".join(map(str, LABELS)))
print("typedef struct golden_loss {\n    ls_loss_options options;\n    bool targets; /* else the labels' one-hot vectors */")
print("    double value, gradient[GOLDEN_BATCH][GOLDEN_OUTPUTS];\n} golden_loss;\n")
print("static const golden_loss golden_losses[] = {")
for reduction in ("mean", "sum"):
    for smoothing in (0.0, 0.1, 1.0):
        case("CROSS_ENTROPY", reduction, smoothing, False)
    for kind in ("MSE", "RMSE"):
        for floats in (False, True):
            case(kind, reduction, 0.0, floats)
print("};\n\n#endif")
