#!/usr/bin/env python3
"""How far the choice of `train --auto` is from the best of all meshes that `plan` lists, on this machine.

    python3 bench/compare_auto.py build/release/bin

Of each model, once for each number of ranks (threads): `train --auto` measures the machine and chooses; then every
mesh that `plan` lists with what was measured, the choice among them, trains in turn, in several rounds. A row has
the choice, its step (median over the rounds), the best mesh and its step, and the regret: how much longer the
choice takes. Slow minutes of the machine hit all meshes of a round; let nothing else run all the same.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from measure import machine

WARMUP = 2  # steps of a run that are not counted
ROOT = Path(__file__).resolve().parent.parent
MODELS = [
    "minigpt --layers 4 --heads 4 --width 128 --context 64 --global-batch 16",
    "minigpt --layers 6 --heads 6 --width 384 --context 128 --global-batch 16",
    "minigpt --layers 2 --heads 8 --width 512 --context 64 --global-batch 8",
    "minigpt --layers 8 --heads 4 --width 64 --context 256 --global-batch 32",
    "minigpt --layers 4 --heads 4 --width 256 --context 512 --global-batch 4",
    "llama --layers 4 --heads 4 --kv-heads 2 --width 128 --hidden 384 --context 64 --global-batch 16",
    "llama --layers 6 --heads 8 --kv-heads 8 --width 256 --hidden 768 --context 128 --global-batch 24",
    "llama --layers 2 --heads 8 --kv-heads 4 --width 512 --hidden 1024 --context 128 --global-batch 8",
    "llama --layers 8 --heads 4 --kv-heads 4 --width 128 --hidden 256 --context 256 --global-batch 8",
    "llama --layers 4 --heads 4 --kv-heads 4 --width 128 --hidden 256 --context 64 --experts 4 --global-batch 16",
]
FLAGS = "dp pp cp ep tp zero schedule chunks micro_batch recompute sequence_parallel".split()

Mesh = tuple[str, ...]


def output(command: list[object]) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout[-1000:]}{done.stderr}")
    return done.stdout


def flags_of(mesh: Mesh) -> list[str]:
    return [word for name, value in zip(FLAGS, mesh) for word in ("--" + name.replace("_", "-"), value)]


def text_of(values: dict[str, object]) -> Mesh:
    def literal(value: object) -> str:
        return str(value).lower() if isinstance(value, bool) else str(value)

    return tuple(literal(values[name]) for name in FLAGS)


class Bench:
    """One model on so many ranks."""

    def __init__(self, a: argparse.Namespace, model: str, ranks: int, folder: Path) -> None:
        program, *self.flags = model.split()
        self.program, self.ranks, self.folder, self.steps = a.programs / program, ranks, folder, a.steps
        self.flags += ["--data", str(a.data)]

    def train(self, *more: object) -> Path:
        out = self.folder / "run"
        shutil.rmtree(out, ignore_errors=True)
        rest = ["--comm", "threads", "--ranks", self.ranks, "--warmup", 0, "--val-every", 0, "--val-fraction", 0]
        output([self.program, "train", *self.flags, *rest, "--out", out, *more])
        return out

    def chosen(self) -> tuple[Mesh, Path]:
        """The mesh that --auto chooses, and what it measured."""
        out = self.train("--auto", "--steps", 1)
        hardware = self.folder / "hardware.toml"
        shutil.copy(out / "hardware.toml", hardware)
        config = tomllib.loads((out / "config.toml").read_text())
        return text_of({name: config[name.replace("_", "-")] for name in FLAGS}), hardware

    def listed(self, hardware: Path) -> list[Mesh]:
        command = [self.program, "plan", *self.flags, "--ranks", self.ranks, "--cp", 0, "--ep", 0]
        said = output([*command, "--hardware", hardware, "--json", "--top", 1000])
        rows = [json.loads(line) for line in said.splitlines()]
        return [text_of(row) for row in rows if row["fits"]]

    def seconds(self, mesh: Mesh) -> float:
        """Of a step."""
        lines = (self.train(*flags_of(mesh), "--steps", self.steps) / "metrics.jsonl").read_text().splitlines()
        return statistics.median(json.loads(line)["seconds"] for line in lines[WARMUP:])


def named(mesh: Mesh) -> str:
    """`dp 2 zero 1 micro_batch 4`: what is not 1, 0 or off."""
    pairs = [f"{name} {value}" for name, value in zip(FLAGS, mesh) if value not in ("1", "0", "off", "false", "1f1b")]
    return " ".join(pairs) or "one rank"


def most_of(meshes: list[Mesh], most: int) -> list[Mesh]:
    """The first of each mesh, then others, in the order of the plan."""
    first = {mesh[:5]: mesh for mesh in reversed(meshes)}.values()
    kept = sorted(first, key=meshes.index) + [mesh for mesh in meshes if mesh not in first]
    return kept[: most or None]


def compare(a: argparse.Namespace, model: str, ranks: int) -> float:
    """Prints a row; the regret."""
    with tempfile.TemporaryDirectory(prefix="triax-auto-") as folder:
        bench = Bench(a, model, ranks, Path(folder))
        chosen, hardware = bench.chosen()
        meshes = list(dict.fromkeys([chosen, *most_of(bench.listed(hardware), a.most)]))
        times: dict[Mesh, list[float]] = {mesh: [] for mesh in meshes}
        for _ in range(a.rounds):
            for mesh, so_far in times.items():
                so_far.append(bench.seconds(mesh))
    middle = {mesh: statistics.median(so_far) for mesh, so_far in times.items()}
    best = min(middle, key=middle.__getitem__)
    regret = middle[chosen] / middle[best] - 1
    cells = [model, ranks, len(meshes), named(chosen), f"{1e3 * middle[chosen]:.1f}", named(best)]
    cells += [f"{1e3 * middle[best]:.1f}", f"{regret:.1%}"]
    print(f"| {' | '.join(map(str, cells))} |", flush=True)
    return regret


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=Path, help="the directory of minigpt and llama")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8, help=f"of each run, {WARMUP} of them warm-up")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--models", type=int, nargs="+", default=range(1, len(MODELS) + 1), help="their numbers, from 1")
    parser.add_argument("--most", type=int, default=0, help="meshes to measure beside the choice; 0: all listed")
    corpus = ROOT / "build/release/share/triax/corpus.txt"
    parser.add_argument("--data", type=Path, default=corpus, help="a text file")
    a = parser.parse_args()
    print("machine:", ", ".join(f"{name} {value}" for name, value in machine().items()))
    print("| model | ranks | meshes | chosen | ms | best | ms | regret |\n|---|---|---|---|---|---|---|---|")
    regrets = [compare(a, MODELS[number - 1], ranks) for number in a.models for ranks in a.ranks]
    print(f"at most 5 % slower than the best: {sum(r <= 0.05 for r in regrets)} of {len(regrets)}; the worst {max(regrets):.1%}")


if __name__ == "__main__":
    try:
        main()
    except RuntimeError as error:
        sys.exit(f"compare_auto: {error}")
