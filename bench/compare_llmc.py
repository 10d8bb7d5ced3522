#!/usr/bin/env python3
"""minigpt against llm.c's CPU trainer in fp32 on this machine: the same weights, batches and steps.

    git clone https://github.com/karpathy/llm.c
    python3 bench/compare_llmc.py --llmc llm.c --triax build/release/bin/minigpt --threads 2

llm.c is compiled with its Makefile's flags for CPUs and OpenMP. Both sides run as processes of
their own in turn, A B A B, and each pair gives one ratio of median step times. AdamW runs without
weight decay, which llm.c would apply to vectors too, and without clipping, which llm.c does not
have. The vocabulary is not padded, so that llm.c computes no more logits than triax. The command
fails if the losses of the two sides differ by more than rounding.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from array import array
from functools import partial
from pathlib import Path

from compare_pytorch import CORPUS, MODEL_FLAGS, WORKLOADS, Comparison
from measure import Job, Run, machine
from pairs import Pair, Pairs

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "peers"))
from minigpt_run import Sampler, read_weights  # noqa: E402
FLAGS = ["-Ofast", "-march=native", "-fopenmp", "-DOMP"]
WARMUP = 2  # steps not counted
STEPS = {"mini": 8, "mini-b16": 5, "gpt2-124m": 6, "tiny": 40}  # llm.c takes seconds a step
TOLERANCE = 1e-4  # relative, of losses
PER_BLOCK = [f"norm1.{name}" for name in ("gamma", "beta")]
PER_BLOCK += [f"{layer}.{name}" for layer in ("qkv", "proj") for name in ("weight", "bias")]
PER_BLOCK += [f"norm2.{name}" for name in ("gamma", "beta")]
PER_BLOCK += [f"{layer}.{name}" for layer in ("up", "down") for name in ("weight", "bias")]


class Llmc:
    """llm.c's trainer on the weights and batches of triax in a comparison."""

    def __init__(self, comparison: Comparison):
        self.comparison, self.model, directory = comparison, comparison.model, comparison.directory
        self.program, self.metrics = directory / "llmc", directory / "llmc.jsonl"
        self.weights, self.windows = directory / "model.bin", directory / "windows.bin"
        self.compile(comparison.a)
        comparison.run_triax(1, lr=0)
        self.write_weights(comparison.out / "step-1")
        self.write_windows(comparison.a.data)

    def compile(self, a: argparse.Namespace) -> None:
        command = [a.cc, *FLAGS, "-I", str(a.llmc), str(HERE / "peers/llmc_train.c")]
        command += ["-o", str(self.program), "-lm"]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}\nfailed:\n{result.stderr[-3000:]}")

    def write_weights(self, checkpoint: Path) -> None:
        """As llm.c's model file: a header of 256 int32, then the tensors of all blocks together."""
        m, weights = self.model, {name: w.data for name, w in read_weights(checkpoint).items()}
        for name in (name for name in weights if ".qkv." in name):
            weights[name] = self.part_major(weights[name])
        names = ["tokens.table", "positions.table"]
        names += [f"block{i}.{name}" for name in PER_BLOCK for i in range(m["layers"])]
        names += ["final_norm.gamma", "final_norm.beta"]
        sizes = [m[name] for name in ("context", "vocab", "layers", "heads", "width", "vocab")]
        header = [20240326, 3, *sizes]
        with self.weights.open("wb") as file:
            file.write(array("i", header + [0] * (256 - len(header))).tobytes())
            for name in names:
                file.write(weights[name])

    def part_major(self, rows: bytes) -> bytes:
        """Output features [heads, 3, head_dim] as [3, heads, head_dim]."""
        heads = self.model["heads"]
        size = len(rows) // (3 * heads)
        pieces = [rows[i : i + size] for i in range(0, len(rows), size)]
        return b"".join(pieces[3 * head + part] for part in range(3) for head in range(heads))

    def write_windows(self, data: Path) -> None:
        """Those on which triax trains, in its order."""
        text, length = data.read_text(encoding="utf-8"), self.model["context"] + 1
        ids = {character: i for i, character in enumerate(sorted(set(text)))}
        tokens = array("i", (ids[character] for character in text))
        order = Sampler(len(tokens) - self.model["context"], seed=1)
        count = self.comparison.steps * self.model["micro_batch"]
        with self.windows.open("wb") as file:
            for start in map(order.at, range(count)):
                tokens[start : start + length].tofile(file)

    def run(self) -> Run:
        c = self.comparison
        sizes = (self.model["micro_batch"], self.model["context"], c.steps)
        command = [str(path) for path in (self.program, self.weights, self.windows, self.metrics)]
        command += [*map(str, sizes), "1e-4"]
        return c.checked(Job(command, self.metrics, c.a.threads), c.steps)


def check_losses(pairs: list[Pair]) -> float:
    """Returns the largest relative difference, or raises ValueError: they do not train the same
    model, or do not train."""
    apart = [abs(x - y) / y for a, b in pairs for x, y in zip(a.losses, b.losses)]
    ours, theirs = (result.losses for result in pairs[0])
    if not all(difference <= TOLERANCE for difference in apart):  # NaN is not
        raise ValueError(f"losses {ours}, of llm.c {theirs}; expected at most {TOLERANCE} apart")
    if theirs[-1] >= theirs[0]:
        raise ValueError(f"losses {theirs} of llm.c do not fall")
    return max(apart)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--llmc", type=Path, required=True, help="a checkout of llm.c")
    add("--triax", type=Path, required=True, help="the minigpt program")
    add("--cc", default="cc", help="compiler of llm.c")
    add("--workload", choices=STEPS, default="mini")
    add("--threads", type=int, default=0, help="default: all cores of this process")
    add("--pairs", type=int, default=5)
    add("--steps", type=int, help=f"of each run, {WARMUP} of them warm-up; default: the workload's")
    add("--data", type=Path, default=CORPUS, help="a text file")
    parser.set_defaults(precision="fp32", triax_flags="--weight-decay 0 --clip 0")
    parser.set_defaults(**dict.fromkeys(MODEL_FLAGS))  # as the workload says
    a = parser.parse_args()
    cores = machine()["cores"]
    a.threads, a.steps = a.threads or cores, a.steps or STEPS[a.workload]
    if not 1 <= a.threads <= cores:
        parser.error(f"--threads {a.threads}: this process may use {cores} cores")
    if a.pairs < 1 or a.steps <= WARMUP:
        parser.error(f"at least 1 pair and {WARMUP + 1} steps are needed")
    if shutil.which(a.cc) is None:
        parser.error(f"--cc {a.cc}: no such program")
    for path in (a.triax, a.data, a.llmc / "train_gpt2.c"):
        if not path.is_file():
            parser.error(f"{path}: no such file")
    return a


def main() -> None:
    a = parse_arguments()
    print("machine:", ", ".join(f"{name} {value}" for name, value in machine().items()))
    bench = Pairs(WARMUP, peer="llm.c")
    with tempfile.TemporaryDirectory(prefix="triax-bench-") as directory:
        comparison = Comparison(a, Path(directory))
        llmc = Llmc(comparison)
        shape = ", ".join(f"{name} {value}" for name, value in comparison.model.items())
        version = subprocess.run([a.cc, "--version"], capture_output=True, text=True).stdout
        print(f"{a.workload}: {shape}, steps {a.steps}", flush=True)
        print(f"llm.c: {version.splitlines()[0]}, {' '.join(FLAGS)}", flush=True)
        pairs = bench.run(partial(comparison.run_triax, a.steps), llmc.run, a.pairs)
    print(f"  losses from the same weights: {check_losses(pairs):.1e} apart at most")
    title = f"{a.workload}, fp32, {a.threads} thread{'s' * (a.threads > 1)}"
    print(bench.row(title, "llm.c", pairs))


if __name__ == "__main__":
    try:
        main()
    except (OSError, RuntimeError, ValueError) as error:
        sys.exit(f"compare_llmc: {error}")
