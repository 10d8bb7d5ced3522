#!/usr/bin/env python3
"""resnet against PyTorch on this machine: ResNet-18 for images of 32 x 32 pixels, in fp32.

    python3 bench/compare_resnet.py --triax build/release/bin/resnet --threads 2

Both sides run as processes of their own in turn, A B A B, and each pair gives one ratio, of the
median step's images per second. PyTorch runs with channels last (or --layout first), and glibc set
to keep freed blocks. --python names an interpreter with torch.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from measure import Job, Run, machine, run

HERE = Path(__file__).resolve().parent
WARMUP = 2  # steps not counted
KEPT = {"MALLOC_MMAP_THRESHOLD_": str(1 << 40), "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--triax", type=Path, required=True, help="the resnet program")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8, help=f"of each run, {WARMUP} of them warm-up")
    parser.add_argument("--micro-batch", type=int, default=64)
    parser.add_argument("--layout", choices=("last", "first"), default="last", help="of PyTorch")
    parser.add_argument("--compile", action="store_true", help="PyTorch with torch.compile")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with torch")
    return parser.parse_args()


def speed(result: Run) -> float:
    return result.tokens_per_second(WARMUP)


def main() -> None:
    a = parse_arguments()
    print("machine:", ", ".join(f"{name} {value}" for name, value in machine().items()))
    ratios, sides = [], ([], [])
    with tempfile.TemporaryDirectory(prefix="triax-bench-") as directory:
        out, metrics = Path(directory) / "run", Path(directory) / "metrics.jsonl"
        common = ["--steps", str(a.steps), "--micro-batch", str(a.micro_batch), "--width", "64"]
        common += ["--metrics", str(metrics)]
        ours = [str(a.triax), "train", *common, "--out", str(out), "--val-every", "0"]
        theirs = [a.python, str(HERE / "train_resnet.py"), *common]
        theirs += ["--channels-last"] * (a.layout == "last") + ["--compile"] * a.compile
        jobs = [
            Job(ours, metrics, a.threads, until=a.steps, unit="images"),
            Job(theirs, metrics, a.threads, environment=KEPT, unit="images"),
        ]
        for pair in range(a.pairs):
            for job, side in zip(jobs, sides):
                shutil.rmtree(out, ignore_errors=True)
                side.append(run(job))
            ratios.append(speed(sides[0][-1]) / speed(sides[1][-1]))
            told = " | ".join(
                f"{name} {speed(side[-1]):.1f} images/s, {side[-1].peak_rss / 1e6:.0f} MB"
                for name, side in zip(("triax", "PyTorch"), sides)
            )
            print(f"  pair {pair + 1}: {told} | ratio {ratios[-1]:.2f}", flush=True)
    columns = []
    for side in sides:
        speeds = [speed(result) for result in side]
        columns.append(f"{statistics.median(speeds):.1f} ({min(speeds):.1f}-{max(speeds):.1f})")
    columns.append(f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})")
    columns += [f"{max(result.peak_rss for result in side) / 1e6:.0f}" for side in sides]
    print(f"| ResNet-18, B {a.micro_batch}, {a.threads} threads | " + " | ".join(columns) + " |")


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, ValueError) as error:
        sys.exit(f"compare_resnet: {error}")
