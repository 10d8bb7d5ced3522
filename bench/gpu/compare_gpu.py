#!/usr/bin/env python3
"""minigpt against PyTorch, eager and compiled, on one GPU: the same model, tokens and steps.

    python3 bench/gpu/compare_gpu.py --minigpt build/release/bin/minigpt --data FILE --out speed.json

In every round of a case each side runs once, as a process of its own; ratios are taken within a
round. Tokens per second are those of the median of 30 steps after the warm-up, in which products
are chosen, graphs captured and PyTorch compiles: of triax between lines of metrics, of PyTorch
between CUDA events. Clocks and memory are nvidia-smi's, tensor memory is each side's own count.
Results are written after every run, so that what a time limit leaves is there. Exit status 1 if a
goal is missed or a figure cannot be true.
"""

import argparse
import dataclasses
import json
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from gpu_goals import goals
from gpu_jobs import CONTEXT, MODELS, TINY, VOCAB, Work, add_arguments, pytorch_job, triax_job
from gpu_watch import Watch, index_of, query
from measure import run  # in bench, where gpu_jobs looks

WARMUP = 15  # steps not counted


@dataclass(frozen=True)
class Side:
    program: str  # triax, repeating (triax with bits that repeat), eager, compiled
    precision: str = "bf16"
    flags: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join((self.program, self.precision, *self.flags))


TRIAX, EAGER, COMPILED = Side("triax"), Side("eager"), Side("compiled")
TRIAX16, EAGER16, COMPILED16 = (Side(s, "fp16") for s in ("triax", "eager", "compiled"))
GRAPH = Side("triax", flags=("--graph",))
REPEATING = Side("repeating")


@dataclass(frozen=True)
class Case:
    model: str
    batch: int
    rounds: int
    sides: tuple[Side, ...]
    context: int = CONTEXT


CASES = {
    "b64": Case("124M", 64, 3, (TRIAX, TRIAX16, EAGER, COMPILED)),
    "b4-graph": Case("124M", 4, 3, (TRIAX, GRAPH)),
    "tiny-graph": Case("small", 1, 3, (TRIAX, GRAPH), context=128),
    # what else is asked for, of less value
    "b64-repeating": Case("124M", 64, 3, (TRIAX, REPEATING)),
    "b64-fp16": Case("124M", 64, 3, (TRIAX16, EAGER16, COMPILED16)),
    "b32-all": Case("124M", 32, 3, (TRIAX, TRIAX16, EAGER, COMPILED, EAGER16, COMPILED16)),
    "b4-all": Case("124M", 4, 3, (TRIAX, GRAPH, TRIAX16, EAGER, COMPILED, EAGER16, COMPILED16)),
    "350M": Case("350M", 32, 1, (TRIAX, COMPILED)),
    "774M": Case("774M", 16, 1, (TRIAX, COMPILED)),
    "1.5B": Case("1.5B", 8, 1, (TRIAX, COMPILED)),
}
FIRST = ("b64", "b4-graph", "tiny-graph")


def work_of(a: argparse.Namespace, case: Case, side: Side) -> Work:
    steps = WARMUP + a.steps
    work = Work(MODELS[case.model], case.batch, steps, side.precision, case.context)
    if a.tiny:
        work = dataclasses.replace(work, model=TINY, context=CONTEXT // 32, vocab=VOCAB // 128)
    return work


def measure(a: argparse.Namespace, case: Case, side: Side, directory: Path) -> dict[str, object]:
    """One run: its speed and what the GPU did meanwhile."""
    work = work_of(a, case, side)
    if side.program in ("triax", "repeating"):  # PyTorch's bits do not repeat either
        fast = ("--nondeterministic",) if side.program == "triax" else ()
        job = triax_job(a, work, directory, *fast, *side.flags)
    else:
        compiled = ("--compile",) if side.program == "compiled" else ()
        job = pytorch_job(a, work, directory, *compiled, *side.flags)
    with Watch(a.device) as watch:
        done = run(job)
    expected = (work.steps, work.batch * work.context)
    if (len(done.seconds), done.tokens) != expected:
        raise RuntimeError(f"{len(done.seconds)} steps of {done.tokens}; expected {expected}")
    ms = sorted(1e3 * seconds for seconds in done.seconds[WARMUP:])
    middle = statistics.median(ms)
    found = {"ms": middle, "ms_low": ms[len(ms) // 4], "ms_high": ms[3 * len(ms) // 4]}
    found |= {"tokens_per_second": 1e3 * done.tokens / middle, "tensor_bytes": done.tensor_bytes}
    found |= {"loss": [done.losses[0], done.losses[-1]]}
    return found | {"gpu": dataclasses.asdict(watch.result) if watch.result else None}


def describe(found: dict[str, object]) -> str:
    gpu = found["gpu"] or {}
    parts = [f"{found['tokens_per_second']:,.0f} tokens/s", f"{found['ms']:.2f} ms"]
    parts.append(f"tensors {found['tensor_bytes'] / 2**30:.1f} GiB")
    if gpu:
        parts.append(f"{gpu['memory_mib'] / 1024:.1f} GiB in all, {gpu['watts']:.0f} W")
        parts.append(f"SM {gpu['sm_mhz'][0]:.0f} MHz (lowest {gpu['sm_mhz'][1]:.0f})")
    return ", ".join(parts)


def run_case(a: argparse.Namespace, name: str, results: dict, directory: Path) -> None:
    """Every side once a round. One that fails is noted and left out from then on."""
    case = CASES[name]
    sides = [s for s in case.sides if s.program == "triax" or not a.without_pytorch]
    entry = {"model": case.model, "batch": case.batch, "sides": {str(s): [] for s in sides}}
    results["cases"][name] = entry
    failed = set()
    for i in range(min(a.rounds or case.rounds, 9)):
        for side in sides:
            if side in failed:
                continue
            try:
                found = measure(a, case, side, directory)
            except (RuntimeError, ValueError) as error:
                failed.add(side)
                results["failed"].append(f"{name}, {side}: {error}")
                print(f"  {name}: {side} FAILED: {error}", flush=True)
                continue
            entry["sides"][str(side)].append(found)
            print(f"  {name} round {i + 1}: {side}: {describe(found)}", flush=True)
            a.out.write_text(json.dumps(results, indent=1) + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    add = parser.add_argument
    add("--cases", default=",".join(FIRST), help=f"of {', '.join(CASES)}")
    add("--rounds", type=int, default=0, help="default: the case's")
    add("--steps", type=int, default=30, help=f"measured, after {WARMUP}")
    add("--without-pytorch", action="store_true", help="triax alone: no comparison")
    add("--tiny", action="store_true", help="a model of no interest, to try this script")
    a = parser.parse_args()
    a.cases = a.cases.split(",")
    for name in a.cases:
        if name not in CASES:
            parser.error(f"--cases {name}: known are {', '.join(CASES)}")
    if a.steps < 1:
        parser.error("--steps: at least one is needed")
    return a


def main() -> int:
    a = parse_arguments()
    gpu = query(("name",), index_of(a.device))[0]
    results = {"gpu": gpu, "steps": a.steps, "warmup": WARMUP, "cases": {}, "failed": []}
    with tempfile.TemporaryDirectory(prefix="triax-bench-") as directory:
        for name in a.cases:
            run_case(a, name, results, Path(directory))
    results["goals"] = [] if a.tiny else [dataclasses.asdict(goal) for goal in goals(results)]
    a.out.write_text(json.dumps(results, indent=1) + "\n")
    for goal in results["goals"]:
        verdict = "met" if goal["met"] else "MISSED"
        print(f"  goal: {goal['what']}: {goal['found']} (at {goal['bound']}): {verdict}")
    missed = [goal for goal in results["goals"] if not goal["met"]]
    return 1 if missed or results["failed"] else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (RuntimeError, ValueError) as error:
        sys.exit(f"compare_gpu: {error}")
