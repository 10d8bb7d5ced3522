#!/usr/bin/env python3
"""What equal bits cost: how many times as long a step takes with --bitwise as without it.

    python3 bench/compare_bitwise.py --minigpt build/release/bin/minigpt

Every round runs each mesh without --bitwise and then with it and each number of slices, so that slow
minutes of the machine do not count. Model, flags and rounds as in compare_meshes.py. The exit status is 1
if a median is above 1.3.
"""

import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from compare_meshes import WARMUP, Mesh, arguments, parse, run_mesh
from measure import machine, spread

GOAL = 1.3
MESHES = {  # and numbers of slices
    Mesh("one rank, two threads", 1, "--global-batch 12 --micro-batch 12", threads=2): (1, 2, 6),
    Mesh("dp 2", 2, "--global-batch 12 --dp 2 --micro-batch 6"): (2,),
    Mesh("tp 2", 2, "--global-batch 12 --tp 2 --micro-batch 12"): (2, 6),
    Mesh("tp 2, sequence parallel", 2, "--global-batch 12 --tp 2 --sequence-parallel --micro-batch 12"): (2,),
    Mesh("pp 2, 1F1B", 2, "--global-batch 12 --pp 2 --micro-batch 3"): (2,),
}


def main() -> None:
    a = parse(arguments(__doc__))
    print("machine:", ", ".join(f"{name} {value}" for name, value in machine().items()))
    chosen = {mesh: slices for mesh, slices in MESHES.items() if a.only in mesh.title}
    if not chosen:
        raise ValueError(f"--only {a.only}: in no title; there are {[m.title for m in MESHES]}")
    ratios: dict[tuple[Mesh, int], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="triax-bench-") as directory:

        def seconds(mesh: Mesh) -> float:
            return statistics.median(run_mesh(a, mesh, Path(directory)).seconds[WARMUP:])

        for i in range(a.rounds):
            for mesh, slices in chosen.items():
                plain = seconds(mesh)
                for n in slices:
                    found = seconds(replace(mesh, flags=f"{mesh.flags} --bitwise --tp-slices {n}"))
                    ratios.setdefault((mesh, n), []).append(found / plain)
            print(f"  round {i + 1} of {a.rounds} done", file=sys.stderr, flush=True)
    print("| mesh | micro-batch | slices | with / without |")
    print("|---|---|---|---|")
    above = []
    for (mesh, n), found in ratios.items():
        micro = mesh.flags.partition("--micro-batch ")[2]
        print(f"| {mesh.title} | {micro} | {n} | {spread(found, '.2f')} |")
        if statistics.median(found) > GOAL:
            above.append(f"{mesh.title} ({n})")
    if above:
        sys.exit(f"compare_bitwise: above {GOAL}: {', '.join(above)}")


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, ValueError) as error:
        sys.exit(f"compare_bitwise: {error}")
