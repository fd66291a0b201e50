#!/usr/bin/python3
"""Writes schedules.h: learning rates as PyTorch's schedulers give them, stepped once an epoch. Run by hand (Debian's
python3-torch, 1.13):
    python3 tests/golden/schedules.py >tests/golden/schedules.h
The tests read the header alone."""
import torch

EPOCHS = 9


def rates(make):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    scheduler = make(optimizer)
    values = []
    for _ in range(EPOCHS):
        values.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return values


CASES = [
    ("LS_SCHEDULE_STEP", 1, 0.1, lambda o: torch.optim.lr_scheduler.StepLR(o, 1)),
    ("LS_SCHEDULE_STEP", 3, 0.5, lambda o: torch.optim.lr_scheduler.StepLR(o, 3, gamma=0.5)),
    ("LS_SCHEDULE_COSINE", 0, 0.1, lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=EPOCHS)),
]
print("/* Made by schedules.py with PyTorch %s: do not edit. */\n/* clang-format off */" % torch.__version__.split("+")[0])
print("#ifndef LS_TESTS_GOLDEN_SCHEDULES_H\n#define LS_TESTS_GOLDEN_SCHEDULES_H\n")
print('#include "reference/schedule.h"\n')
print("enum { GOLDEN_EPOCHS = %d }; /* and T_max */\n" % EPOCHS)
print("static const struct {\n    ls_schedule schedule;\n    double rates[GOLDEN_EPOCHS]; /* of each epoch, from 0.1 */\n} golden_schedules[] = {")
for kind, size, gamma, make in CASES:
    print("    {{%s, %d, %r, 0}, {%s}}," % (kind, size, gamma, ", ".join(map(repr, rates(make)))))
print("};\n\n#endif")
