#!/usr/bin/env python3
"""resnet against PyTorch on this machine: ResNet-18 for images of 32 x 32 pixels, in fp32.

    python3 bench/compare_resnet.py --triax build/release/bin/triax-resnet --threads 2

Both sides run as processes of their own in turn, A B A B, and each pair gives one ratio, of the
median step's images per second. PyTorch runs with channels last (or --layout first), and glibc set
to keep freed blocks. --python names an interpreter with torch.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from measure import Job, Run, machine, run
from pairs import Pairs, add_python, check_python, malloc_environments

HERE = Path(__file__).resolve().parent
WARMUP = 2  # steps not counted


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
    add_python(parser)
    a = parser.parse_args()
    check_python(a.python)
    return a


def main() -> None:
    a = parse_arguments()
    print("machine:", ", ".join(f"{name} {value}" for name, value in machine().items()))
    bench = Pairs(WARMUP, "images")
    with tempfile.TemporaryDirectory(prefix="triax-bench-") as directory:
        out, metrics = Path(directory) / "run", Path(directory) / "metrics.jsonl"
        common = ["--steps", str(a.steps), "--micro-batch", str(a.micro_batch), "--width", "64"]
        common += ["--metrics", str(metrics)]

        def run_triax() -> Run:
            command = [str(a.triax), "train", *common, "--out", str(out), "--val-every", "0"]
            shutil.rmtree(out, ignore_errors=True)
            return run(Job(command, metrics, a.threads, until=a.steps, unit="images"))

        def run_torch() -> Run:
            command = [a.python, str(HERE / "peers/train_resnet.py"), *common]
            command += ["--channels-last"] * (a.layout == "last") + ["--compile"] * a.compile
            kept = malloc_environments()["kept"]
            return run(Job(command, metrics, a.threads, environment=kept, unit="images"))

        pairs = bench.run(run_triax, run_torch, a.pairs)
    setting = f"channels {a.layout}, {'compile' if a.compile else 'eager'}"
    print(bench.row(f"ResNet-18, B {a.micro_batch}, {a.threads} threads", setting, pairs))


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, ValueError) as error:
        sys.exit(f"compare_resnet: {error}")
