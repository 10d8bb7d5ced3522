#!/usr/bin/env python3
"""The loss of minigpt and of PyTorch from the same weights on the same batches, step by step.

    python3 bench/compare_loss.py --minigpt build/release/bin/minigpt --data FILE --out loss.json

minigpt's first weights (in bf16 and fp16 the masters: what was rounded once) are taken from the
checkpoint of a step with learning rate 0. Exit status 1 if the two losses of any step are further
apart than --within.
"""

import argparse
import dataclasses
import json
import sys
import tempfile
from pathlib import Path

from gpu_jobs import CONTEXT, MODELS, TINY, VOCAB, Work, add_arguments
from gpu_jobs import pytorch_job, triax_job, whole_triax_job
from measure import run


def first_weights(a: argparse.Namespace, work: Work, directory: Path) -> Path:
    """The checkpoint of a run that has changed nothing."""
    still = dataclasses.replace(work, steps=1, lr=0)
    run(whole_triax_job(a, still, directory))
    kept = directory / "first"
    (directory / "triax" / "step-1").rename(kept)
    return kept


def losses(a: argparse.Namespace, work: Work, directory: Path) -> tuple[list[float], list[float]]:
    weights = first_weights(a, work, directory)
    ours = run(triax_job(a, work, directory))
    theirs = run(pytorch_job(a, work, directory, "--checkpoint", str(weights), "--same-order"))
    if not len(ours.losses) == len(theirs.losses) == work.steps:
        found = f"{len(ours.losses)} and {len(theirs.losses)}"
        raise ValueError(f"{found} steps; expected {work.steps}")
    return ours.losses, theirs.losses


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
        ours, theirs = losses(a, work, Path(directory))
    apart = [abs(x - y) for x, y in zip(ours, theirs)]
    good = all(distance <= a.within for distance in apart)  # NaN is not
    for step, (x, y, distance) in enumerate(zip(ours, theirs, apart), 1):
        if step in (1, a.steps) or step % 10 == 0 or not distance <= a.within:
            print(f"step {step:3}  triax {x:.5f}  PyTorch {y:.5f}  apart {distance:.5f}")
    result = {"model": a.model, "batch": a.batch, "precision": a.precision, "within": a.within}
    result |= {"largest": max(apart), "triax": ours, "pytorch": theirs, "good": good}
    a.out.write_text(json.dumps(result, indent=1) + "\n")
    verdict = "ok" if good else "FAILED"
    print(f"largest distance {max(apart):.5f}; at most {a.within} is allowed: {verdict}")
    return 0 if good else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (RuntimeError, ValueError) as error:
        sys.exit(f"compare_loss: {error}")
