#!/usr/bin/env python3
"""What a mesh, or recomputation, costs: the same model, global batch and steps on this machine's
cores.

    python3 bench/compare_meshes.py --minigpt build/release/bin/minigpt

Every round runs the base (one rank) and then each mesh as a job of its own; a mesh's ratio is taken
against the base run of its round, so that slow minutes of the machine do not count. All ranks have
one thread and share as many CPUs as there are ranks.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from measure import Job, Run, machine, run

ROOT = Path(__file__).resolve().parent.parent
MODEL = "--layers 6 --heads 6 --width 384 --context 256 --global-batch 8 --warmup 0 --dropout 0"
WARMUP = 3  # steps not counted


@dataclass(frozen=True)
class Mesh:
    title: str
    ranks: int
    flags: str


BASE = Mesh("one rank", 1, "--micro-batch 4")
MESHES = (
    Mesh("dp 2", 2, "--dp 2 --micro-batch 4"),
    Mesh("dp 2, ZeRO-1", 2, "--dp 2 --zero 1 --micro-batch 4"),
    Mesh("dp 2, ZeRO-2", 2, "--dp 2 --zero 2 --micro-batch 4"),
    Mesh("dp 2, ZeRO-3", 2, "--dp 2 --zero 3 --micro-batch 4"),
    Mesh("tp 2", 2, "--tp 2 --micro-batch 4"),
    Mesh("tp 2, sequence parallel", 2, "--tp 2 --sequence-parallel --micro-batch 4"),
    Mesh("pp 2, 1F1B, 8 micro-batches", 2, "--pp 2 --micro-batch 1"),
    Mesh("pp 2, GPipe, 8 micro-batches", 2, "--pp 2 --schedule gpipe --micro-batch 1"),
    Mesh("pp 2, interleaved, 8", 2, "--pp 2 --schedule interleaved --micro-batch 1"),
    Mesh("pp 2, ZB-H1, 8", 2, "--pp 2 --schedule zb-h1 --micro-batch 1"),
    Mesh("one rank, 8 micro-batches", 1, "--micro-batch 1"),
    Mesh("one rank, recompute selective", 1, "--micro-batch 4 --recompute selective"),
    Mesh("one rank, recompute block", 1, "--micro-batch 4 --recompute block"),
    Mesh("one rank, optimizer offloaded", 1, "--micro-batch 4 --offload optimizer"),
    Mesh("one rank, optimizer in files", 1, "--micro-batch 4 --offload optimizer --offload-dir FILES"),
)


def run_mesh(a: argparse.Namespace, mesh: Mesh, directory: Path) -> Run:
    metrics, out = directory / "metrics.jsonl", directory / "run"
    shutil.rmtree(out, ignore_errors=True)
    launch = [str(ROOT / "scripts/launch.sh"), "-n", str(mesh.ranks)] if mesh.ranks > 1 else []
    flags = [str(a.files or directory) if word == "FILES" else word for word in mesh.flags.split()]
    command = [*launch, str(a.minigpt), "train", *MODEL.split(), *flags]
    command += ["--steps", str(a.steps), "--val-fraction", "0", "--data", str(a.data)]
    command += ["--out", str(out), "--metrics", str(metrics), *a.flags.split()]
    return run(Job(command, metrics, threads=1, cpus=mesh.ranks))


def spread(values: list[float], form: str) -> str:
    numbers = (statistics.median(values), min(values), max(values))
    middle, low, high = (format(value, form) for value in numbers)
    return f"{middle} ({low}-{high})"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--minigpt", type=Path, required=True)
    add("--rounds", type=int, default=5)
    add("--steps", type=int, default=12, help=f"of each run, {WARMUP} of them warm-up")
    add("--only", default="", help="only meshes whose title contains this")
    add("--flags", default="", help="further flags of minigpt train, in one word")
    corpus = ROOT / "build/release/share/triax/corpus.txt"
    add("--files", type=Path, help="where optimizer state in files is (a temporary directory)")
    add("--data", type=Path, default=corpus, help="a text file")
    a = parser.parse_args()
    for path in (a.minigpt, a.data):
        if not path.is_file():
            parser.error(f"{path}: no such file")
    if a.rounds < 1 or a.steps <= WARMUP:
        parser.error(f"at least 1 round and {WARMUP + 1} steps are needed")
    if machine()["cores"] < 2:
        parser.error("two cores are needed")
    return a


def main() -> None:
    a = parse_arguments()
    print("machine:", ", ".join(f"{name} {value}" for name, value in machine().items()))
    chosen = [mesh for mesh in MESHES if a.only in mesh.title]
    speeds: dict[Mesh, list[float]] = {mesh: [] for mesh in (BASE, *chosen)}
    with tempfile.TemporaryDirectory(prefix="triax-bench-") as directory:
        for i in range(a.rounds):
            for mesh, so_far in speeds.items():
                so_far.append(run_mesh(a, mesh, Path(directory)).tokens_per_second(WARMUP))
            print(f"  round {i + 1} of {a.rounds} done", file=sys.stderr, flush=True)
    print("| mesh | tokens/s | times one rank |\n|---|---|---|")
    for mesh, found in speeds.items():
        ratios = [speed / base for speed, base in zip(found, speeds[BASE])]
        print(f"| {mesh.title} | {spread(found, ',.0f')} | {spread(ratios, '.2f')} |")


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, ValueError) as error:
        sys.exit(f"compare_meshes: {error}")
