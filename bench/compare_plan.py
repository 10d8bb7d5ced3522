#!/usr/bin/env python3
"""What `plan` predicts for meshes of this machine's cores, beside what they take.

    python3 bench/compare_plan.py build/release/bin/minigpt

Every round calibrates once with one rank and once with two, predicts every mesh and trains it; a
prediction is held against the steps of its own round, so that slow minutes of the machine do not
count. Ranks are threads, each with as many threads as its share of the cores. A row has the
prediction, the step (medians over rounds) and the lowest, median and highest error of a round.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import machine, spread

WARMUP = 3  # steps of a run that are not counted
ROOT = Path(__file__).resolve().parent.parent
MODEL = "--layers 6 --heads 6 --width 384 --context 128 --micro-batch 4 --global-batch 16".split()
# What plan would choose by itself; a later flag takes the place of an earlier one.
FIXED = "--dp 1 --pp 1 --tp 1 --zero 0 --recompute off --schedule 1f1b --sequence-parallel false"
MESHES = {
    1: ["", "--recompute block"],
    2: ["--dp 2", "--dp 2 --zero 1", "--dp 2 --zero 3", "--dp 2 --recompute block",
        "--tp 2", "--tp 2 --sequence-parallel true", "--tp 2 --recompute block", "--pp 2",
        "--pp 2 --schedule zb-h1", "--pp 2 --schedule interleaved --chunks 2"],
}  # fmt: skip


def flags_of(mesh: str) -> list[str]:
    words = {}
    for text in (FIXED, mesh):
        listed = text.split()
        words |= dict(zip(listed[::2], listed[1::2]))
    return [word for pair in words.items() for word in pair]


def output(command: list[str]) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout[-1000:]}{done.stderr}")
    return done.stdout


def predicted(a: argparse.Namespace, hardware: Path, mesh: str) -> float:
    """Seconds of a step."""
    command = [a.minigpt, "plan", *MODEL, *flags_of(mesh), "--data", a.data, "--json"]
    said = output([*command, "--hardware", hardware, "--memory", "1TB"])
    return json.loads(said.splitlines()[0])["step_seconds"]


def measured(a: argparse.Namespace, ranks: int, mesh: str, out: Path) -> float:
    """Seconds of a step."""
    command = [a.minigpt, "train", *MODEL, *flags_of(mesh), "--data", a.data, "--out", out]
    command += ["--comm", "threads", "--ranks", ranks, "--steps", a.steps, "--warmup", 0]
    shutil.rmtree(out, ignore_errors=True)
    output([*command, "--val-every", 0, "--val-fraction", 0])
    lines = (out / "metrics.jsonl").read_text().splitlines()
    return statistics.median(json.loads(line)["seconds"] for line in lines[WARMUP:])


def one_round(a: argparse.Namespace, ranks: int, folder: Path) -> dict[str, tuple[float, float]]:
    """The prediction and the measured step of each mesh."""
    hardware = folder / "hardware.toml"
    hardware.unlink(missing_ok=True)
    output([a.minigpt, "calibrate", "--comm", "threads", "--ranks", ranks, "--out", hardware])
    foreseen = {mesh: predicted(a, hardware, mesh) for mesh in MESHES[ranks]}
    return {
        mesh: (seconds, measured(a, ranks, mesh, folder / "run"))
        for mesh, seconds in foreseen.items()
    }


def print_table(ranks: int, rounds: list[dict[str, tuple[float, float]]]) -> list[float]:
    """The median errors of its rows."""
    middle = []
    for mesh in MESHES[ranks]:
        pairs = [found[mesh] for found in rounds]
        errors = [foreseen / seconds - 1 for foreseen, seconds in pairs]
        foreseen, seconds = (statistics.median(column) for column in zip(*pairs))
        name = f"`{mesh}`" if mesh else "one rank"
        print(f"| {ranks} | {name} | {foreseen:.3f} | {seconds:.3f} | {spread(errors, '+.1%')} |")
        middle.append(statistics.median(errors))
    return middle


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("minigpt", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=7, help=f"of each run, {WARMUP} of them warm-up")
    corpus = ROOT / "build/release/share/triax/corpus.txt"
    parser.add_argument("--data", type=Path, default=corpus, help="a text file")
    a = parser.parse_args()
    print("machine:", ", ".join(f"{name} {value}" for name, value in machine().items()))
    rounds: dict[int, list[dict[str, tuple[float, float]]]] = {ranks: [] for ranks in MESHES}
    with tempfile.TemporaryDirectory(prefix="triax-plan-") as folder:
        for i in range(a.rounds):
            for ranks, found in rounds.items():
                found.append(one_round(a, ranks, Path(folder)))
            print(f"  round {i + 1} of {a.rounds} done", file=sys.stderr, flush=True)
    print("| ranks | mesh | predicted, s | measured, s | off by |\n|---|---|---|---|---|")
    errors = [error for ranks, found in rounds.items() for error in print_table(ranks, found)]
    near = sum(abs(error) <= 0.1 for error in errors)
    print(f"within 10 %: {near} of {len(errors)}")


if __name__ == "__main__":
    try:
        main()
    except RuntimeError as error:
        sys.exit(f"compare_plan: {error}")
