#!/usr/bin/env python3
"""minigpt against PyTorch on this machine: the same model, the same tokens and steps.

    python3 bench/compare_pytorch.py --triax build/release/bin/minigpt --workload mini --threads 2

Machines differ and neighbours disturb, so only paired ratios count: both sides run as processes of
their own in turn, A B A B, and each pair gives one ratio. Tokens per second are those of the median
step after the warm-up, from each side's own timing of a step; the peak is the process's resident
memory (VmHWM), which for PyTorch includes the library itself and, compiled, the compiler.

PyTorch runs at its best: fused AdamW, and the fastest of eager or compiled (torch.compile) with
malloc as it is, with freed blocks kept, on huge pages, jemalloc or tcmalloc where they are
installed, as found by short runs first; --torch and --malloc fix the choice. --python names an
interpreter with torch; this one needs only the standard library.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from measure import Job, Run, machine, run

HERE = Path(__file__).resolve().parent
CORPUS = HERE.parent / "build/release/share/triax/corpus.txt"
MODEL_FLAGS = ("layers", "heads", "width", "context", "micro_batch", "vocab")
WARMUP = 5  # steps not counted: caches fill, torch.compile compiles
PROBE_STEPS = WARMUP + 6


@dataclass(frozen=True)
class Workload:
    layers: int
    heads: int
    width: int
    context: int
    micro_batch: int
    steps: int
    vocab: int | None = None  # none: as many as the data has characters


WORKLOADS = {
    "mini": Workload(layers=6, heads=6, width=384, context=256, micro_batch=4, steps=40),
    "mini-b16": Workload(layers=6, heads=6, width=384, context=256, micro_batch=16, steps=15),
    "gpt2-124m": Workload(12, 12, width=768, context=64, micro_batch=4, steps=20, vocab=50257),
    "tiny": Workload(layers=4, heads=4, width=128, context=64, micro_batch=12, steps=300),
}


@dataclass(frozen=True)
class Setting:
    """How PyTorch is run."""

    mode: str
    malloc: str

    def __str__(self) -> str:
        return f"{self.mode}, malloc {self.malloc}"


def installed_library(name: str) -> str | None:
    listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout
    paths = [line.split("=>")[1].strip() for line in listed.splitlines() if f"lib{name}" in line]
    return paths[0] if paths else None


def malloc_environments() -> dict[str, dict[str, str]]:
    big = str(1 << 40)
    kept = {
        "MALLOC_MMAP_THRESHOLD_": big,
        "MALLOC_TRIM_THRESHOLD_": big,
        "MALLOC_TOP_PAD_": str(64 << 20),
    }
    found = {
        "default": {},
        "kept": kept,
        "kept-huge": kept | {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"},
    }
    forever = "oversize_threshold:1,dirty_decay_ms:-1,muzzy_decay_ms:-1"
    if path := installed_library("jemalloc"):
        found["jemalloc"] = {"LD_PRELOAD": path, "MALLOC_CONF": forever}
    if path := installed_library("tcmalloc"):
        found["tcmalloc"] = {"LD_PRELOAD": path}
    return found


class Comparison:
    """One workload at one precision and thread count, in a temporary directory."""

    def __init__(self, a: argparse.Namespace, directory: Path):
        self.a, self.directory = a, directory
        self.mallocs = malloc_environments()
        self.workload = WORKLOADS[a.workload]
        values = {name: getattr(a, name) or getattr(self.workload, name) for name in MODEL_FLAGS}
        values["vocab"] = values["vocab"] or len(set(a.data.read_text(encoding="utf-8")))
        self.model: dict[str, int] = values
        self.steps = a.steps or self.workload.steps

    def flags(self, metrics: Path, steps: int) -> list[str]:
        """What both sides are told."""
        flags = {name.replace("_", "-"): value for name, value in self.model.items()}
        flags |= {"steps": steps, "dropout": 0, "data": self.a.data, "metrics": metrics}
        flags |= {"precision": self.a.precision, "seed": 1}
        flags |= {"lr": 1e-4, "weight-decay": 0.1, "clip": 1}
        return [text for name, value in flags.items() for text in (f"--{name}", str(value))]

    def run_triax(self) -> Run:
        metrics = self.directory / "triax.jsonl"
        command = [str(self.a.triax), "train", *self.flags(metrics, self.steps)]
        out = self.directory / "triax"
        shutil.rmtree(out, ignore_errors=True)  # a new run wants a new directory
        command += ["--out", str(out), "--warmup", "0", "--val-fraction", "0"]
        command += self.a.triax_flags.split()
        return self.checked(Job(command, metrics, self.a.threads), self.steps)

    def run_torch(self, setting: Setting, steps: int) -> Run:
        metrics = self.directory / "torch.jsonl"
        command = [self.a.python, str(HERE / "train_pytorch.py"), *self.flags(metrics, steps)]
        if setting.mode == "compile":
            command.append("--compile")
        job = Job(command, metrics, self.a.threads, environment=self.mallocs[setting.malloc])
        return self.checked(job, steps)

    def checked(self, job: Job, steps: int) -> Run:
        result, tokens = run(job), self.model["micro_batch"] * self.model["context"]
        if (len(result.seconds), result.tokens) != (steps, tokens):
            raise ValueError(
                f"{job.command[0]}: {len(result.seconds)} steps of {result.tokens} tokens; "
                f"expected {steps} of {tokens}"
            )
        return result

    def probe(self) -> tuple[Setting, dict[str, float]]:
        """The fastest setting that was allowed, and tokens per second of the best step of each.
        The best: a disturbed step should not decide."""
        modes = ("eager", "compile") if self.a.torch == "best" else (self.a.torch,)
        names = tuple(self.mallocs) if self.a.malloc == "best" else (self.a.malloc,)
        settings = [Setting(mode, name) for mode in modes for name in names]
        if len(settings) == 1:
            return settings[0], {}
        speeds = {}
        for setting in settings:
            result = self.run_torch(setting, PROBE_STEPS)
            speeds[setting] = result.tokens / min(result.seconds[WARMUP:])
            print(f"  probe: {setting}: {speeds[setting]:,.0f} tokens/s", flush=True)
        best = max(speeds, key=speeds.get)
        return best, {str(setting): speed for setting, speed in speeds.items()}

    def run_pairs(self, setting: Setting) -> list[tuple[Run, Run]]:
        pairs = []
        for i in range(self.a.pairs):
            ours, theirs = self.run_triax(), self.run_torch(setting, self.steps)
            pairs.append((ours, theirs))
            print(
                f"  pair {i + 1}: triax {describe(ours)} | PyTorch {describe(theirs)}"
                f" | ratio {speed(ours) / speed(theirs):.2f}",
                flush=True,
            )
        return pairs


def speed(result: Run) -> float:
    return result.tokens_per_second(WARMUP)


def describe(result: Run) -> str:
    losses = f"{result.losses[0]:.3f} -> {result.losses[-1]:.3f}"
    return f"{speed(result):,.0f} tokens/s, {result.peak_rss / 1e6:.0f} MB, loss {losses}"


def table_row(title: str, setting: Setting, pairs: list[tuple[Run, Run]]) -> str:
    """Markdown: workload | triax tokens/s | PyTorch tokens/s | ratio | MB triax | MB PyTorch."""
    ratios = [speed(ours) / speed(theirs) for ours, theirs in pairs]
    columns = [title]
    for side in zip(*pairs):
        speeds = [speed(result) for result in side]
        columns.append(f"{statistics.median(speeds):,.0f} ({min(speeds):,.0f}-{max(speeds):,.0f})")
    columns[2] += f" {setting}"
    columns.append(f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})")
    columns += [f"{max(result.peak_rss for result in side) / 1e6:.0f}" for side in zip(*pairs)]
    return "| " + " | ".join(columns) + " |"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--triax", type=Path, required=True, help="the minigpt program")
    add("--triax-flags", default="", help="further flags of minigpt train, in one word")
    add("--workload", choices=WORKLOADS, default="mini")
    add("--threads", type=int, default=0, help="default: all cores of this process")
    add("--pairs", type=int, default=5)
    add("--steps", type=int, help=f"of each run, {WARMUP} of them warm-up; default: the workload's")
    add("--precision", choices=("fp32", "bf16"), default="fp32")
    add("--torch", choices=("eager", "compile", "best"), default="best")
    add("--malloc", choices=(*malloc_environments(), "best"), default="best", help="of PyTorch")
    add("--python", default=sys.executable, help="an interpreter with torch")
    add("--data", type=Path, default=CORPUS, help="a text file")
    add("--json", type=Path, help="keep every step's seconds here")
    for name in MODEL_FLAGS:
        add(f"--{name.replace('_', '-')}", type=int, help="override the workload's")
    a = parser.parse_args()
    cores = machine()["cores"]
    a.threads = a.threads or cores
    if not 1 <= a.threads <= cores:
        parser.error(f"--threads {a.threads}: this process may use {cores} cores")
    if a.steps is not None and a.steps <= WARMUP:
        parser.error(f"--steps {a.steps}: {WARMUP} steps are warm-up; more are needed")
    if a.pairs < 1:
        parser.error(f"--pairs {a.pairs}: at least one is needed")
    for path in (a.triax, a.data):
        if not path.is_file():
            parser.error(f"{path}: no such file")
    return a


def main() -> None:
    a = parse_arguments()
    facts = machine()
    title = f"{a.workload}, {a.precision}, {a.threads} thread{'s' * (a.threads > 1)}"
    print("machine:", ", ".join(f"{name} {value}" for name, value in facts.items()))
    if a.precision == "bf16" and "amx_bf16" not in facts["features"]:
        print(f"no AMX on this CPU\n| {title} | not measured | | | | |")
        return
    with tempfile.TemporaryDirectory(prefix="triax-bench-") as directory:
        comparison = Comparison(a, Path(directory))
        shape = ", ".join(f"{name} {value}" for name, value in comparison.model.items())
        print(f"{title}: {shape}, steps {comparison.steps}", flush=True)
        setting, probes = comparison.probe()
        print(f"  PyTorch runs {setting}", flush=True)
        pairs = comparison.run_pairs(setting)
    torch_facts = json.loads(pairs[-1][1].stdout.splitlines()[-1])
    print("PyTorch:", ", ".join(f"{name} {value}" for name, value in torch_facts.items()))
    print(table_row(title, setting, pairs))
    if a.json:
        record = {"title": title, "model": comparison.model, "warmup": WARMUP, "machine": facts}
        record |= {"pytorch": torch_facts, "setting": str(setting), "probes": probes}
        record["pairs"] = [{"triax": vars(ours), "pytorch": vars(theirs)} for ours, theirs in pairs]
        a.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, ValueError) as error:
        sys.exit(f"compare_pytorch: {error}")
