"""GPT-2's sizes, and how minigpt and PyTorch are started on them, on a GPU."""

import argparse
import dataclasses
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCH))
from measure import Job  # noqa: E402
CONTEXT = 1024
# 50,257 rounded up to a multiple of 128, for both sides: rows of odd length slow products down.
VOCAB = 50304
BETA2 = 0.95  # as in reference_gpt.py
# Steps of triax behind those that count: the lines of its last ones come all at once.
SPARE = 10


@dataclass(frozen=True)
class Model:
    layers: int
    heads: int
    width: int


MODELS = {
    "124M": Model(12, 12, 768),
    "350M": Model(24, 16, 1024),
    "774M": Model(36, 20, 1280),
    "1.5B": Model(48, 25, 1600),
    "small": Model(2, 2, 128),  # kernels too short to hide the host behind
}
TINY = Model(2, 2, 32)  # for tests of the scripts


@dataclass(frozen=True)
class Work:
    """What both sides are asked to do."""

    model: Model
    batch: int
    steps: int
    precision: str = "bf16"
    context: int = CONTEXT
    vocab: int = VOCAB
    lr: float = 1e-4

    def flags(self, a: argparse.Namespace, metrics: Path) -> list[str]:
        m = self.model
        flags = {"layers": m.layers, "heads": m.heads, "width": m.width, "context": self.context}
        flags |= {"vocab": self.vocab, "micro-batch": self.batch, "steps": self.steps}
        flags |= {"dropout": 0, "precision": self.precision, "lr": self.lr, "weight-decay": 0.1}
        flags |= {"clip": 1, "seed": 1, "data": a.data, "metrics": metrics, "device": a.device}
        return [text for name, value in flags.items() for text in (f"--{name}", str(value))]


def triax_job(a: argparse.Namespace, work: Work, directory: Path, *more: str) -> Job:
    """Killed once all steps are measured: what it does at its end is not."""
    job = whole_triax_job(a, dataclasses.replace(work, steps=work.steps + SPARE), directory, *more)
    return dataclasses.replace(job, until=work.steps)


def whole_triax_job(a: argparse.Namespace, work: Work, directory: Path, *more: str) -> Job:
    """Goes on to its end, and leaves a checkpoint."""
    out, metrics = directory / "triax", directory / "triax.jsonl"
    shutil.rmtree(out, ignore_errors=True)  # a new run wants a new directory
    command = [str(a.minigpt), "train", *work.flags(a, metrics), "--out", str(out)]
    command += ["--warmup", "0", "--min-lr", str(work.lr), "--beta2", str(BETA2)]
    command += ["--val-fraction", "0", *more]
    paths = {"LD_LIBRARY_PATH": a.libraries} if a.libraries else {}
    return Job(command, metrics, a.threads, environment=paths)


def pytorch_job(a: argparse.Namespace, work: Work, directory: Path, *more: str) -> Job:
    metrics = directory / "pytorch.jsonl"
    script = str(BENCH / "peers/train_pytorch.py")
    return Job([a.python, script, *work.flags(a, metrics), *more], metrics, a.threads)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What triax_job and pytorch_job read."""
    add = parser.add_argument
    add("--minigpt", type=Path, required=True)
    add("--data", type=Path, required=True, help="a text file")
    add("--device", default="cuda:0")
    add("--threads", type=int, default=8, help="of each process, on the host")
    add("--python", default=sys.executable, help="an interpreter with torch")
    add("--libraries", default="", help="LD_LIBRARY_PATH of minigpt")
    add("--out", type=Path, required=True, help="JSON file of all results")
