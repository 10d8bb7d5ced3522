#!/usr/bin/env python3
"""minigpt or llama against PyTorch on this machine: the same model, the same tokens and steps.

    python3 bench/compare_pytorch.py --triax build/release/bin/minigpt --workload mini --threads 2
    python3 bench/compare_pytorch.py --triax build/release/bin/triax-llama --workload llama --threads 2

Machines differ and neighbours disturb, so only paired ratios count: both sides run as processes of
their own in turn, A B A B, and each pair gives one ratio of step times. Steps are the median ones
after the warm-up, in each side's own timing; the peak is the process's resident memory (VmHWM),
which for PyTorch includes the library itself and, compiled, the compiler. Before the pairs, both
sides train from the same weights on the same batches, and have to have the same losses.
--busy K runs K processes for each core meanwhile that do nothing but compute.

PyTorch runs at its best: fused AdamW, and the fastest of eager or compiled (torch.compile) with
malloc as it is, with freed blocks kept, on huge pages, jemalloc or tcmalloc where they are
installed, as found by short runs first; --torch and --malloc fix the choice. --python names an
interpreter with torch; this one needs only the standard library.
"""

import argparse
import json
import shutil
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from measure import Job, Run, machine, run
from pairs import Pairs, add_python, busy, check_python, malloc_environments

HERE = Path(__file__).resolve().parent
CORPUS = HERE.parent / "build/release/share/triax/corpus.txt"
MODEL_FLAGS = ("layers", "heads", "kv_heads", "width", "hidden", "context", "micro_batch", "vocab")
WARMUP = 5  # steps not counted: caches fill, torch.compile compiles
PROBE_STEPS = WARMUP + 6
SAME_STEPS = 4  # whose losses are compared
TOLERANCE = {"fp32": 1e-5, "bf16": 5e-3}  # relative


@dataclass(frozen=True)
class Workload:
    layers: int
    heads: int
    width: int
    context: int
    micro_batch: int
    steps: int
    vocab: int | None = None  # none: as many as the data has characters
    kv_heads: int | None = None  # of a Llama, as is the next
    hidden: int | None = None


WORKLOADS = {
    "mini": Workload(layers=6, heads=6, width=384, context=256, micro_batch=4, steps=40),
    "mini-b16": Workload(layers=6, heads=6, width=384, context=256, micro_batch=16, steps=15),
    "gpt2-124m": Workload(12, 12, width=768, context=64, micro_batch=4, steps=20, vocab=50257),
    "tiny": Workload(layers=4, heads=4, width=128, context=64, micro_batch=12, steps=300),
    "llama": Workload(6, 6, 384, 256, micro_batch=4, steps=40, kv_heads=2, hidden=1024),
    "llama-tiny": Workload(4, 8, 128, 64, micro_batch=12, steps=300, kv_heads=4, hidden=344),
}


@dataclass(frozen=True)
class Setting:
    """How PyTorch is run."""

    mode: str
    malloc: str

    def __str__(self) -> str:
        return f"{self.mode}, malloc {self.malloc}"


class Comparison:
    """One workload at one precision and thread count, in a temporary directory."""

    def __init__(self, a: argparse.Namespace, directory: Path):
        self.a, self.directory, self.out = a, directory, directory / "triax"
        self.mallocs = malloc_environments()
        self.workload = WORKLOADS[a.workload]
        values = {name: getattr(a, name) or getattr(self.workload, name) for name in MODEL_FLAGS}
        values["vocab"] = values["vocab"] or len(set(a.data.read_text(encoding="utf-8")))
        self.model: dict[str, int] = {name: value for name, value in values.items() if value}
        self.steps = a.steps or self.workload.steps

    def flags(self, metrics: Path, steps: int, lr: float = 1e-4) -> list[str]:
        """What all programs are told."""
        flags = {name.replace("_", "-"): self.model[name] for name in self.model if name != "vocab"}
        flags |= {"steps": steps, "data": self.a.data, "metrics": metrics, "lr": lr}
        flags |= {"precision": self.a.precision, "seed": 1, "weight-decay": 0.1, "clip": 1}
        return [text for name, value in flags.items() for text in (f"--{name}", str(value))]

    def run_triax(self, steps: int, lr: float = 1e-4) -> Run:
        """Leaves its checkpoint in `self.out`."""
        metrics = self.directory / "triax.jsonl"
        command = [str(self.a.triax), "train", *self.flags(metrics, steps, lr)]
        shutil.rmtree(self.out, ignore_errors=True)  # a new run wants a new directory
        command += ["--out", str(self.out), "--warmup", "0", "--val-fraction", "0"]
        command += ["--min-lr", str(lr), "--beta2", "0.95"]  # as in train_pytorch.py
        if "kv_heads" not in self.model:  # llama has no dropout, and its data's vocabulary
            command += ["--vocab", str(self.model["vocab"]), "--dropout", "0"]
        command += self.a.triax_flags.split()
        return self.checked(Job(command, metrics, self.a.threads), steps)

    def run_torch(self, setting: Setting, steps: int, *more: str) -> Run:
        metrics = self.directory / "torch.jsonl"
        command = [self.a.python, str(HERE / "peers/train_pytorch.py"), *self.flags(metrics, steps)]
        command += ["--vocab", str(self.model["vocab"]), *more]
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

    def check_losses(self, setting: Setting) -> float:
        """Trains both sides from the same weights on the same batches. Returns the largest relative
        difference of their losses, or raises ValueError: they do not train the same model."""
        weights = self.directory / "weights"
        self.run_triax(1, lr=0)
        (self.out / "step-1").rename(weights)
        ours = self.run_triax(SAME_STEPS).losses
        flags = ("--checkpoint", str(weights), "--same-order")
        theirs = self.run_torch(setting, SAME_STEPS, *flags).losses
        apart = [abs(x - y) / y for x, y in zip(ours, theirs)]
        limit = TOLERANCE[self.a.precision]
        if not all(difference <= limit for difference in apart):  # NaN is not
            raise ValueError(f"losses {ours}, of PyTorch {theirs}; expected at most {limit} apart")
        return max(apart)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--triax", type=Path, required=True, help="the program: minigpt, of llama workloads llama")
    add("--triax-flags", default="", help="further flags of triax, in one word")
    add("--workload", choices=WORKLOADS, default="mini")
    add("--threads", type=int, default=0, help="default: all cores of this process")
    add("--pairs", type=int, default=5)
    add("--busy", type=int, default=0, help="processes for each core that compute meanwhile")
    add("--steps", type=int, help=f"of each run, {WARMUP} of them warm-up; default: the workload's")
    add("--precision", choices=("fp32", "bf16"), default="fp32")
    add("--torch", choices=("eager", "compile", "best"), default="best")
    add("--malloc", choices=(*malloc_environments(), "best"), default="best", help="of PyTorch")
    add_python(parser)
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
    if not 0 <= a.busy <= 16:
        parser.error(f"--busy {a.busy}: expected 0 to 16 processes for each core")
    if a.pairs < 1:
        parser.error(f"--pairs {a.pairs}: at least one is needed")
    for path in (a.triax, a.data):
        if not path.is_file():
            parser.error(f"{path}: no such file")
    check_python(a.python)
    return a


def main() -> None:
    a = parse_arguments()
    facts = machine()
    title = f"{a.workload}, {a.precision}, {a.threads} thread{'s' * (a.threads > 1)}"
    title += f", {a.busy} busy process{'es' * (a.busy > 1)} a core" * (a.busy > 0)
    print("machine:", ", ".join(f"{name} {value}" for name, value in facts.items()))
    neighbours = busy(a.busy * facts["cores"])
    with tempfile.TemporaryDirectory(prefix="triax-bench-") as directory, neighbours:
        comparison = Comparison(a, Path(directory))
        shape = ", ".join(f"{name} {value}" for name, value in comparison.model.items())
        print(f"{title}: {shape}, steps {comparison.steps}", flush=True)
        setting, probes = comparison.probe()
        print(f"  PyTorch runs {setting}", flush=True)
        apart = comparison.check_losses(setting)
        print(f"  {SAME_STEPS} losses from the same weights: {apart:.1e} apart at most", flush=True)
        steps, bench = comparison.steps, Pairs(WARMUP)
        run_torch = partial(comparison.run_torch, setting, steps)
        pairs = bench.run(partial(comparison.run_triax, steps), run_torch, a.pairs)
    torch_facts = json.loads(pairs[-1][1].stdout.splitlines()[-1])
    print("PyTorch:", ", ".join(f"{name} {value}" for name, value in torch_facts.items()))
    print(bench.row(title, str(setting), pairs))
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
