#!/usr/bin/env python3
"""What equal bits cost: the time of a step with --bitwise, in that of the same mesh without.

    python3 bench/compare_bitwise.py --minigpt build/release/bin/minigpt

Every round runs each mesh without --bitwise and then with it, with each number of slices, so that slow
minutes of the machine do not count. The exit status is 1 if a median is above 1.3.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from compare_meshes import MODEL, ROOT, WARMUP
from measure import Job, machine, run, spread

GOAL = 1.3


@dataclass(frozen=True)
class Mesh:
    title: str
    flags: str  # and the micro-batch without --bitwise, with which it is 1
    slices: tuple[int, ...] = (2,)
    ranks: int = 1
    threads: int = 1


MESHES = (
    Mesh("one rank, two threads", "--micro-batch 12", (1, 2, 6), threads=2),
    Mesh("dp 2", "--dp 2 --micro-batch 6", ranks=2),
    Mesh("tp 2", "--tp 2 --micro-batch 12", (2, 6), ranks=2),
    Mesh("pp 2, 1F1B", "--pp 2 --micro-batch 3", ranks=2),
)


def seconds(a: argparse.Namespace, mesh: Mesh, more: str, directory: Path) -> float:
    """Of a step, the median."""
    metrics, out = directory / "metrics.jsonl", directory / "run"
    shutil.rmtree(out, ignore_errors=True)
    launch = [str(ROOT / "scripts/launch.sh"), "-n", str(mesh.ranks)] if mesh.ranks > 1 else []
    command = [*launch, str(a.minigpt), "train", *MODEL.split(), *mesh.flags.split()]
    command += ["--global-batch", "12", "--warmup", "0", "--steps", str(a.steps)]
    command += ["--val-fraction", "0", "--data", str(a.data), "--out", str(out)]
    command += ["--metrics", str(metrics), "--precision", a.precision, *more.split()]
    job = Job(command, metrics, threads=mesh.threads, cpus=mesh.ranks * mesh.threads)
    return statistics.median(run(job).seconds[WARMUP:])


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--minigpt", type=Path, required=True)
    add("--rounds", type=int, default=5)
    add("--steps", type=int, default=8, help=f"of each run, {WARMUP} of them warm-up")
    add("--precision", choices=("fp32", "bf16", "fp16"), default="fp32")
    corpus = ROOT / "build/release/share/triax/corpus.txt"
    add("--data", type=Path, default=corpus, help="a text file")
    a = parser.parse_args()
    for path in (a.minigpt, a.data):
        if not path.is_file():
            parser.error(f"{path}: no such file")
    if a.rounds < 1 or a.steps <= WARMUP:
        parser.error(f"at least 1 round and {WARMUP + 1} steps are needed")
    return a


def main() -> None:
    a = parse_arguments()
    print("machine:", ", ".join(f"{name} {value}" for name, value in machine().items()))
    ratios: dict[tuple[Mesh, int], list[float]] = {
        (mesh, slices): [] for mesh in MESHES for slices in mesh.slices
    }
    with tempfile.TemporaryDirectory(prefix="triax-bench-") as directory:
        for i in range(a.rounds):
            for mesh in MESHES:
                without = seconds(a, mesh, "", Path(directory))
                for slices in mesh.slices:
                    flags = f"--bitwise --micro-batch 1 --tp-slices {slices}"
                    ratios[mesh, slices].append(seconds(a, mesh, flags, Path(directory)) / without)
            print(f"  round {i + 1} of {a.rounds} done", file=sys.stderr, flush=True)
    print("| mesh | without --bitwise | slices | times as long |\n|---|---|---|---|")
    for (mesh, slices), found in ratios.items():
        print(f"| {mesh.title} | `{mesh.flags}` | {slices} | {spread(found, '.2f')} |")
    above = [mesh for mesh, found in ratios.items() if statistics.median(found) > GOAL]
    if above:
        sys.exit(f"compare_bitwise: above {GOAL}: {', '.join(f'{m.title} ({s})' for m, s in above)}")


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, ValueError) as error:
        sys.exit(f"compare_bitwise: {error}")
