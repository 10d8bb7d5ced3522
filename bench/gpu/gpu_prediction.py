#!/usr/bin/env python3
"""What every kernel of a training step of GPT-2 124M should take on an H200, beside what it took.

    python3 bench/gpu/gpu_prediction.py [ceilings.jsonl]     the second of bench_cuda_kernels, as bench/gpu/h200.jsonl

Markdown: a line a kernel, with its bytes and FLOP in a step of B 64, T 1024 in bf16. A product takes
its FLOP at a rate, another kernel its bytes at SHARE of the rate of a copy; rates are RATES and COPY.
Bytes are those that have to be read and written once.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from gpu_goals import read_kernels
from gpu_table import table

LAYERS, WIDTH, VOCAB, CONTEXT, BATCH = 12, 768, 50304, 1024, 64
TOKENS = BATCH * CONTEXT
PARAMETERS = 124_475_904

COPY = 4.3  # TB/s, read and written together, as measured on an H200
SHARE = 0.85  # of it, which gpu_goals.py asks of memory-bound kernels
# TFLOP/s. 790 is a large bf16 product's, measured on an H200. The others are estimates: of it 82 %
# where there are many tiles, 72 % where few columns make split sums, 87 % with 50,304 columns; and of
# attention, whose FLOP are those of half a square, what cuDNN's kernels are reported to reach.
RATES = {"body": 650, "weights": 570, "head": 690, "attention": 280, "attention backward": 225}
GAP = 0.002  # ms between two kernels


@dataclass(frozen=True)
class Kernel:
    what: str
    count: int  # in a step
    bytes: float = 0  # each
    flops: float = 0
    rate: str = ""  # of RATES; else it is bound by memory
    line: str = ""  # of bench_cuda_kernels, without sizes

    def ms(self) -> float:
        """All of them."""
        if self.rate:
            return self.count * self.flops / RATES[self.rate] / 1e9
        return self.count * self.bytes / (SHARE * COPY) / 1e9

    def how(self) -> str:
        return f"{RATES[self.rate]} TFLOP/s" if self.rate else f"{100 * SHARE:.0f} % of {COPY} TB/s"


def product(what: str, rate: str, m: int, n: int, k: int, line: str, **more) -> Kernel:
    size = (m * n + m * k + n * k) * 2
    size += more.pop("extra", 0) + (2 * n * k if rate == "weights" else 0)  # gradients are f32
    return Kernel(what, more.pop("count", LAYERS), size, 2 * m * n * k, rate, line)


def body() -> list[Kernel]:
    """The four products of a block, their gradients, and what is inside them."""
    found = []
    layers = {"qkv": (3, 1), "proj": (1, 1), "up": (4, 1), "down": (1, 4)}
    for name, (to, of) in layers.items():
        n, k = to * WIDTH, of * WIDTH
        inside = {"qkv": "+bias", "up": "+bias+gelu"}.get(name, "+bias+residual")
        extra = 0 if name == "qkv" else 2 * TOKENS * n
        line = f"matmul/{name}{inside}"
        found.append(product(f"{name} forward, {inside[1:]}", "body", TOKENS, n, k, line, extra=extra))
        slope = 2 * TOKENS * k if name == "down" else 0
        what = f"{name} input gradient" + (", slope of GELU" if slope else "")
        line = f"matmul/dx{'*slope' if slope else ''}/{TOKENS}x{k}x{n}"
        found.append(product(what, "body", TOKENS, k, n, line, extra=slope))
        line = f"matmul/dw/{n}x{k}x{TOKENS}"
        found.append(product(f"{name} weight gradient", "weights", TOKENS, n, k, line))
    return found


def head() -> list[Kernel]:
    sizes = (TOKENS, VOCAB, WIDTH)
    gradient, weights = f"matmul/dx/{TOKENS}x{WIDTH}x{VOCAB}", f"matmul/dw/{VOCAB}x{WIDTH}x{TOKENS}"
    return [
        product("head forward", "head", *sizes, f"matmul/head/{TOKENS}x{VOCAB}x{WIDTH}", count=1),
        product("head input gradient", "head", *sizes, gradient, count=1),
        product("head weight gradient", "head", *sizes, weights, count=1),
    ]


def attention() -> list[Kernel]:
    square, rows = TOKENS * CONTEXT * WIDTH, 2 * TOKENS * WIDTH
    return [
        Kernel("attention", LAYERS, 4 * rows, 2 * square, "attention", "attention/forward"),
        Kernel("attention backward", LAYERS, 8 * rows, 5 * square, "attention backward", "attention/backward"),
    ]


def bound_by_memory() -> list[Kernel]:
    rows, logits, norms = 2 * TOKENS * WIDTH, 2 * TOKENS * VOCAB, 2 * LAYERS + 1
    return [
        Kernel("layer norm", norms, 2 * rows, line="norm/forward"),
        Kernel("layer norm gradients, the input's added", norms, 4 * rows,
               line="norm/backward onto the residual's gradient"),
        Kernel("bias gradients", LAYERS, 9 * rows, line="sum/biases"),
        Kernel("cross-entropy and its gradient", 1, 2 * logits, line="cross_entropy/at once in place"),
        Kernel("embedding", 1, 2 * rows, line="embedding/forward"),
        Kernel("embedding gradient", 1, rows + 8 * VOCAB * WIDTH, line="embedding/backward"),
        Kernel("squares of the gradient", 1, 4 * PARAMETERS, line="squares/f32"),
        Kernel("AdamW", 1, 30 * PARAMETERS, line="adamw/bf16 with master"),
    ]


def kernels() -> list[Kernel]:
    return body() + head() + attention() + bound_by_memory()


def measured(kernel: Kernel, lines: list[dict]) -> float | None:
    """Milliseconds in a step, of the line that is the kernel's; None without one."""
    for line in lines:
        name = line["name"]
        if name == kernel.line or name.startswith(kernel.line + "/"):
            return kernel.count * line["ms"]
    return None


def show(number: float | None) -> str:
    return f"{number:.2f}" if number else ""


def row_of(k: Kernel) -> list[str]:
    gb, tflop = show(k.count * k.bytes / 1e9), show(k.count * k.flops / 1e12)
    return [k.what, str(k.count), gb, tflop, show(k.ms()), k.how(), f"`{k.line}`"]


def total(of: list[Kernel]) -> float:
    return sum(k.ms() + k.count * GAP for k in of)


def markdown(lines: list[dict]) -> str:
    header = "kernel|in a step|GB|TFLOP|expected, ms|at|measured by"
    rows = [[*row_of(k), *([show(measured(k, lines))] if lines else [])] for k in kernels()]
    count, ms = sum(k.count for k in kernels()), total(kernels())
    between = ["between kernels", str(count), "", "", show(count * GAP), f"{1000 * GAP:.0f} us each"]
    speed = f"**{TOKENS / ms * 1e3:,.0f} tokens/s**"
    step = ["**a step**", "", "", "", f"**{ms:.1f}**", speed, "part `speed`"]
    for last in (between, step):
        rows.append(last + [""] * (7 + bool(lines) - len(last)))
    if lines:
        together = sum(measured(k, lines) or 0 for k in kernels())
        rows.append(["kernels by themselves", str(count), *[""] * 5, f"{together:.1f}"])
    return table(header + ("|measured, ms" if lines else ""), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ceilings", type=Path, nargs="?")
    path = parser.parse_args().ceilings
    sys.stdout.write(markdown(read_kernels(path) if path else []))


if __name__ == "__main__":
    main()
