#!/usr/bin/env python3
"""What a mesh, or recomputation, costs: the same model, global batch and steps on this machine's
cores.

    python3 bench/compare_meshes.py --minigpt build/release/bin/minigpt

Every round runs each mesh as a job of its own, and just before it the base (one rank), of which its
ratio is taken, so that slow minutes of the machine do not count. All ranks have one thread and share
as many CPUs as there are ranks. Two runs that have nothing to do with each other, each of half the
batch, show what speed-up the machine allows. --python adds PyTorch over gloo to the rounds: one
process with the whole batch, whose ratio is taken within the round, DDP and FSDP2 with two; eager,
fused AdamW, glibc set to keep freed blocks on huge pages.
"""

import argparse
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from measure import Job, Run, machine, run, spread
from pairs import check_python, malloc_environments

ROOT = Path(__file__).resolve().parent.parent
MODEL = "--layers 6 --heads 6 --width 384 --context 256 --dropout 0"
WARMUP = 3  # steps not counted
TOLERANCE = {"fp32": 1e-5, "bf16": 5e-3}  # relative, of the first losses


@dataclass(frozen=True)
class Mesh:
    title: str
    ranks: int
    flags: str
    threads: int = 1  # of a rank


@dataclass(frozen=True)
class Torch(Mesh):
    """Processes of train_pytorch.py, each of which takes its share of the batch at once."""


@dataclass(frozen=True)
class Apart(Mesh):
    """As many runs of one rank at the same time, which share out the batch and nothing else."""


@dataclass(frozen=True)
class Pair:
    """A run of a mesh, and that of the base just before it."""

    base: Run
    run: Run


BASE = Mesh("one rank", 1, "--micro-batch 4")
TORCH_BASE = Torch("PyTorch, one process", 1, "")
TORCH = (
    TORCH_BASE,
    Torch("PyTorch DDP, two processes", 2, "--parallel ddp"),
    Torch("PyTorch FSDP2, two processes", 2, "--parallel fsdp"),
)
MESHES = (
    Apart("2 independent runs", 2, "--micro-batch 4"),
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
    if isinstance(mesh, Torch):
        return run_torch(a, mesh, directory)
    if isinstance(mesh, Apart):
        return run_apart(a, mesh, directory)
    return run(job_of(a, mesh, directory, a.batch))


def run_apart(a: argparse.Namespace, mesh: Apart, directory: Path) -> Run:
    def one(number: int) -> Run:
        own = directory / str(number)
        own.mkdir(exist_ok=True)
        alone = replace(mesh, ranks=1)
        return run(replace(job_of(a, alone, own, a.batch // mesh.ranks), cpus=mesh.ranks))

    with ThreadPoolExecutor(mesh.ranks) as pool:
        runs = list(pool.map(one, range(mesh.ranks)))
    seconds = [sum(step) / len(step) for step in zip(*(r.seconds for r in runs))]
    return replace(runs[0], seconds=seconds, tokens=sum(r.tokens for r in runs))


def job_of(a: argparse.Namespace, mesh: Mesh, directory: Path, batch: int) -> Job:
    metrics, out = directory / "metrics.jsonl", directory / "run"
    shutil.rmtree(out, ignore_errors=True)
    launch = [str(ROOT / "scripts/launch.sh"), "-n", str(mesh.ranks)] if mesh.ranks > 1 else []
    flags = [str(a.files or directory) if word == "FILES" else word for word in mesh.flags.split()]
    command = [*launch, str(a.minigpt), "train", *MODEL.split(), "--global-batch", str(batch)]
    command += [*a.flags.split(), *flags, "--precision", a.precision, "--warmup", "0"]
    command += ["--steps", str(a.steps), "--val-fraction", "0", "--data", str(a.data)]
    command += ["--out", str(out), "--metrics", str(metrics)]
    return Job(command, metrics, threads=mesh.threads, cpus=mesh.ranks * mesh.threads)


def run_torch(a: argparse.Namespace, mesh: Torch, directory: Path) -> Run:
    metrics = directory / "metrics.jsonl"
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(mesh.ranks)]
    vocab = len(set(a.data.read_text(encoding="utf-8")))  # as minigpt counts it
    command = [a.python, *(launch if mesh.ranks > 1 else []), str(ROOT / "bench/peers/train_pytorch.py")]
    command += [*MODEL.split(), *mesh.flags.split(), "--vocab", str(vocab), "--steps", str(a.steps)]
    command += ["--micro-batch", str(a.batch // mesh.ranks), "--precision", a.precision]
    command += ["--data", str(a.data), "--metrics", str(metrics)]
    kept = malloc_environments()["kept-huge"]
    return run(Job(command, metrics, threads=1, cpus=mesh.ranks, environment=kept))


def arguments(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--minigpt", type=Path, required=True)
    add("--rounds", type=int, default=5)
    add("--steps", type=int, default=12, help=f"of each run, {WARMUP} of them warm-up")
    add("--batch", type=int, default=8, help="sequences of a step over all ranks")
    add("--only", default="", help="only meshes whose title contains this")
    add("--flags", default="", help="further flags of minigpt train, in one word")
    corpus = ROOT / "build/release/share/triax/corpus.txt"
    parser.set_defaults(files=None)
    add("--data", type=Path, default=corpus, help="a text file")
    add("--precision", choices=TOLERANCE, default="fp32")
    return parser


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    a = parser.parse_args()
    for path in (a.minigpt, a.data):
        if not path.is_file():
            parser.error(f"{path}: no such file")
    if a.batch < 8 or a.batch % 8 != 0:
        parser.error("--batch: a multiple of 8 is needed")
    if a.rounds < 1 or a.steps <= WARMUP:
        parser.error(f"at least 1 round and {WARMUP + 1} steps are needed")
    if machine()["cores"] < 2:
        parser.error("two cores are needed")
    return a


def main() -> None:
    parser = arguments(__doc__)
    where = "where optimizer state in files is (a temporary directory)"
    parser.add_argument("--files", type=Path, help=where)
    parser.add_argument("--python", help="an interpreter with PyTorch, to add its rows")
    a = parse(parser)
    if a.python:
        check_python(a.python)
    if not any(a.only in mesh.title for mesh in MESHES):
        sys.exit(f"compare_meshes: no mesh has `{a.only}` in its title")
    print("machine:", ", ".join(f"{name} {value}" for name, value in machine().items()))
    chosen = [mesh for mesh in MESHES if a.only in mesh.title] + list(TORCH if a.python else ())
    pairs: dict[Mesh, list[Pair]] = {mesh: [] for mesh in chosen}
    with tempfile.TemporaryDirectory(prefix="triax-bench-") as directory:
        for i in range(a.rounds):
            for mesh, so_far in pairs.items():
                base = run_mesh(a, BASE, Path(directory))
                so_far.append(Pair(base, run_mesh(a, mesh, Path(directory))))
            check_losses(pairs, TOLERANCE[a.precision])
            print(f"  round {i + 1} of {a.rounds} done", file=sys.stderr, flush=True)
    print_table(pairs)


def check_losses(pairs: dict[Mesh, list[Pair]], tolerance: float) -> None:
    """Raises ValueError unless all first losses are those of the base: same weights, same batch."""
    for mesh, found in pairs.items():
        if isinstance(mesh, Apart):
            continue
        torch = isinstance(mesh, Torch)
        for i, pair in enumerate(found):
            one = pairs[TORCH_BASE][i].run if torch else pair.base
            loss, wanted = pair.run.losses[0], one.losses[0]
            if not abs(loss - wanted) <= tolerance * wanted:  # NaN is not
                raise ValueError(f"{mesh.title}: first loss {loss}; expected {wanted}")


def print_table(pairs: dict[Mesh, list[Pair]]) -> None:
    def speed(result: Run) -> float:
        return result.tokens_per_second(WARMUP)

    torch = [speed(pair.run) for pair in pairs.get(TORCH_BASE, [])]
    heads = ["mesh", "tokens/s", f"times {BASE.title}"]
    heads += [f"times {TORCH_BASE.title}"] if torch else []
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")

    def line(title: str, speeds: list[float], of_base: list[float], by_round: list[float]) -> None:
        columns = [title, spread(speeds, ",.0f"), spread(of_base, ".2f")]
        if torch:
            columns.append(spread([x / y for x, y in zip(by_round, torch)], ".2f"))
        print(f"| {' | '.join(columns)} |")

    bases = [speed(pair.base) for found in pairs.values() for pair in found]
    beside_torch = [speed(pair.base) for pair in pairs.get(TORCH_BASE, [])]
    line(BASE.title, bases, [1], beside_torch)
    for mesh, found in pairs.items():
        speeds = [speed(pair.run) for pair in found]
        of_base = [x / speed(pair.base) for x, pair in zip(speeds, found)]
        line(mesh.title, speeds, of_base, speeds)


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, ValueError) as error:
        sys.exit(f"compare_meshes: {error}")
