#!/usr/bin/env python3
"""How far the gradient norm of bf16 is from that of fp32, on one rank and on tensor-parallel ranks.

    python3 bench/compare_norms.py --minigpt build/release/bin/minigpt

The same small model is trained for a few steps from each seed: on one rank in fp32, and in bf16 on one
rank and on --tp ranks that are threads. For each seed it prints the root mean square over the steps of
the relative difference to fp32.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

MODEL = "--layers 4 --heads 6 --width 96 --context 64 --micro-batch 2 --global-batch 8"


def norms(minigpt: str, out: Path, flags: str) -> list[float]:
    command = [minigpt, "train", *MODEL.split(), *flags.split(), "--comm", "threads", "--out", str(out)]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}  # of each rank
    ended = subprocess.run(command, capture_output=True, text=True, env=one_thread)
    if ended.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{ended.stderr}")
    return [json.loads(line)["grad_norm"] for line in (out / "metrics.jsonl").read_text().splitlines()]


def apart(found: list[float], expected: list[float]) -> float:
    squares = [(a / b - 1) ** 2 for a, b in zip(found, expected, strict=True)]
    return math.sqrt(sum(squares) / len(squares))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minigpt", required=True)
    parser.add_argument("--tp", type=int, default=6)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3, help="1 to so many")
    a = parser.parse_args()
    print(f"| seed | bf16, one rank | bf16, tp {a.tp} |\n|---|---|---|")
    for seed in range(1, a.seeds + 1):
        with tempfile.TemporaryDirectory(prefix="triax-norms-") as directory:
            runs = []
            for flags in ("", "--precision bf16", f"--precision bf16 --ranks {a.tp} --tp {a.tp}"):
                out = Path(directory) / str(len(runs))
                runs.append(norms(a.minigpt, out, f"{flags} --seed {seed} --steps {a.steps}"))
        one, split = (apart(run, runs[0]) for run in runs[1:])
        print(f"| {seed} | {one:.1e} | {split:.1e} |", flush=True)


if __name__ == "__main__":
    try:
        main()
    except RuntimeError as error:
        sys.exit(f"compare_norms: {error}")
