#!/usr/bin/env python3
"""The loss of minigpt and of PyTorch from the same weights on the same batches, step by step.

    python3 bench/gpu/compare_loss.py --minigpt build/release/bin/minigpt --data FILE --out loss.json

minigpt's first weights (in bf16 and fp16 the masters: what was rounded once) are taken from the
checkpoint of a step with learning rate 0. PyTorch runs twice: with the residual stream in the
precision, as triax has it, and in float32, as autocast has it. That is what rounding does to one
computation. Exit status 1 if in any step triax and the first of them are further apart than --within
or, where that is more, twice what the two are apart in that step; or if 5 % of the steps need that.
"""

import argparse
import dataclasses
import json
import math
import statistics
import sys
import tempfile
from pathlib import Path

from gpu_jobs import CONTEXT, MODELS, TINY, VOCAB, Work, add_arguments
from gpu_jobs import pytorch_job, triax_job, whole_triax_job
from measure import run  # in bench, where gpu_jobs looks


def first_weights(a: argparse.Namespace, work: Work, directory: Path) -> Path:
    """The checkpoint of a run that has changed nothing."""
    still = dataclasses.replace(work, steps=1, lr=0)
    run(whole_triax_job(a, still, directory))
    kept = directory / "first"
    (directory / "triax" / "step-1").rename(kept)
    return kept


def losses(a: argparse.Namespace, work: Work, directory: Path) -> list[list[float]]:
    """Of triax, of PyTorch, and of PyTorch with a residual stream in float32."""
    start = "--checkpoint", str(first_weights(a, work, directory)), "--same-order"
    runs = [run(triax_job(a, work, directory))]
    runs.append(run(pytorch_job(a, work, directory, *start, "--narrow-residual")))
    if a.precision != "fp32":  # where they would be the same
        runs.append(run(pytorch_job(a, work, directory, *start)))
    for done in runs:
        if len(done.losses) != work.steps:
            raise ValueError(f"{len(done.losses)} steps; expected {work.steps}")
    return [runs[0].losses, runs[1].losses, runs[-1].losses]


def distances(one: list[float], other: list[float]) -> list[float]:
    return [abs(x - y) for x, y in zip(one, other)]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--precision", choices=("fp32", "bf16", "fp16"), default="bf16")
    parser.add_argument("--within", type=float, default=0.02, help="nats")
    parser.add_argument("--model", choices=(*MODELS, "tiny"), default="124M")
    return parser.parse_args()


def main() -> int:
    a = parse_arguments()
    work = Work(MODELS.get(a.model, TINY), a.batch, a.steps, a.precision, lr=3e-4)
    if a.model == "tiny":
        work = dataclasses.replace(work, context=CONTEXT // 32, vocab=VOCAB // 128)
    with tempfile.TemporaryDirectory(prefix="triax-loss-") as directory:
        ours, theirs, wide = losses(a, work, Path(directory))
    apart, spread = distances(ours, theirs), distances(theirs, wide)
    near = [math.isfinite(d) and d <= max(a.within, 2 * s) for d, s in zip(apart, spread)]
    far = sum(not d <= a.within for d in apart)
    good = all(near) and far < max(2, 0.05 * a.steps)
    for step, (x, y, z, ok) in enumerate(zip(ours, theirs, wide, near), 1):
        if step in (1, a.steps) or step % 10 == 0 or not ok:
            print(f"step {step:3}  triax {x:.5f}  PyTorch {y:.5f}, in float32 {z:.5f}")
    result = {"model": a.model, "batch": a.batch, "precision": a.precision, "within": a.within}
    result |= {"largest": max(apart), "median": statistics.median(apart)}
    result |= {"of_pytorch": max(spread), "median_of_pytorch": statistics.median(spread)}
    result |= {"triax": ours, "pytorch": theirs, "wide": wide, "good": good}
    a.out.write_text(json.dumps(result, indent=1) + "\n")
    for name, of in (("from PyTorch", apart), ("of PyTorch in float32 from that", spread)):
        print(f"largest distance {name} {max(of):.5f}, median {statistics.median(of):.5f}")
    print(f"{far} steps of {a.steps} further apart than {a.within}, {near.count(False)} too far")
    print("ok" if good else "FAILED")
    return 0 if good else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (RuntimeError, ValueError) as error:
        sys.exit(f"compare_loss: {error}")
