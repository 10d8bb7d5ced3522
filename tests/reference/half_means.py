#!/usr/bin/env python3
"""Print what PyTorch computes in 16 bits where tests/autograd/half_test.cpp must agree: means, mse and their gradients,
products with Python's numbers. The lists of the test are these lines.

    python3 tests/reference/half_means.py       (needs torch)
"""

import torch

HALVES = {"f16": torch.float16, "bf16": torch.bfloat16}


def exact(x):
    return ", ".join(f"{v:.9g}" for v in x.double().flatten().tolist())


for name, dtype in HALVES.items():
    for count, value, seed in ((100_000, 3, 1), (100_000, 3, 1024), (257, 1, 1), (1000, 3, 1), (1_000_000, 2, 1)):
        x = torch.full((count,), value, dtype=dtype, requires_grad=True)
        y = x.mean()
        y.backward(torch.tensor(float(seed), dtype=dtype))
        print(f"{{{name}, {count}, {value}, {seed}, {exact(y)}, {exact(x.grad[0])}}},")

for name, dtype in HALVES.items():
    for count, x, y in ((64, 100, 0), (100_000, 1, 0), (257, 2, 1), (3, 300, 0), (1000, 100, 0.01), (3, 0.1, 0.3)):
        loss = torch.nn.functional.mse_loss(torch.full((count,), x, dtype=dtype), torch.full((count,), y, dtype=dtype))
        print(f"{{{name}, {count}, {x}, {y}, {exact(loss)}}},")

rows = torch.tensor([[60000, 30000, 3], [60000, -50000, 0.1], [50000, 7, -2]]).half()
for dims in ((0, 1), (0,), (1,)):
    print(f"{dims}: {exact(rows.mean(dims))}")

x = torch.tensor([60000, 3, -7.5])
for name, dtype in HALVES.items():
    for text in ("x / 100000", "x * 1e-5", "x * 0.1", "x / 257", "x - 70000", "x * 2", "x / 3e-8"):
        print(f"{name} {text}: {exact(eval(text, {'x': x.to(dtype)}))}")
