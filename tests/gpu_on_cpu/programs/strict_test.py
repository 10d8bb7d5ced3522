"""strict_test.py MINIGPT MPIRUN [--all | CASE ...]: on GPUs as strict as CUDA and NCCL may be (README.md), every schedule
trains as one rank on the CPU, in processes of its own, and what must hang ends with 72.

A process that has trained before knows its products and has its memory: only the first steps of a new one wait for the
device while messages wait for their receivers. --all: every schedule with all numbers of micro-batches that leave a
rest, under every strictness. CASE: a part of the names of those to run, as they are printed."""

import concurrent.futures
import dataclasses
import itertools
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples/programs"))
from minigpt_program import Run, mpirun, some_text, words  # noqa: E402

minigpt, launcher, *wanted = sys.argv[1:]
MODEL = dict(heads=2, width=16, context=8, micro_batch=1, warmup=0, val_fraction=0, steps=2)
MESSAGE = 512  # bytes between two stages of this model
SCHEDULES = ["interleaved", "zb-interleaved", "zb-2p", "zb-v", "v-half", "v-min", "1f1b-v", "dualpipev", "1f1b", "gpipe", "zb-h1"]
MICROS = {2: [4, 5, 7, 9, 15, 16], 4: [9, 10, 11, 16]}
# These go on if cudaMalloc waits for the device, as CUDA may let it. In the others messages of the first step must not
# need their receivers, too: room for one is enough.
FREE_TO_ALLOCATE = ["interleaved", "1f1b", "gpipe", "zb-h1"]
ROOMS = {f"room for {n}": dict(GPU_ON_CPU_NCCL_ROOM=str(n * MESSAGE)) for n in (1, 2)}
LAZY = dict(GPU_ON_CPU_LAZY="1")
POISON = dict(TRIAX_POISON="1", GPU_ON_CPU_RACES="1", GPU_ON_CPU_DELAY="0.5")
STRICT = LAZY | POISON
MALLOC = dict(GPU_ON_CPU_MALLOC_WAITS="1")
PLAIN = {"plain": {}, **ROOMS}
ALL = PLAIN | {"cudaMalloc waits, room for 1": MALLOC | ROOMS["room for 1"]} | {f"strict, {name}": STRICT | more for name, more in PLAIN.items()}
HANGS = 72
JOBS = 2


@dataclasses.dataclass
class Case:
    name: str
    mesh: dict
    micros: int
    environment: dict
    status: int = 0

    def ranks(self):
        return math.prod(self.mesh.get(axis, 1) for axis in ("dp", "pp", "tp"))


def pipeline(pp, schedule, micros, strictness, status=0, **environment):
    shape = dict(pp=pp, layers=2 * pp, schedule=schedule)
    return Case(f"{schedule} {micros} on {pp}, {strictness}", shape, micros, ALL.get(strictness, {}) | environment, status)


def filled(**flags):
    """With freed memory filled, without a schedule."""
    name = ", ".join(f"{key} {value}" for key, value in flags.items())
    return Case(f"{name}, filled", dict(layers=4) | flags, 8, STRICT)


def all_cases():
    return [pipeline(pp, schedule, micros, strictness) for strictness in ALL for pp in MICROS
            for schedule, micros in itertools.product(SCHEDULES, MICROS[pp])] + [
        pipeline(pp, schedule, micros, "cudaMalloc waits", **MALLOC) for pp in MICROS
        for schedule, micros in itertools.product(FREE_TO_ALLOCATE, MICROS[pp])] + OTHERS


def chosen_cases():
    """What has hung before, and each schedule and strictness at least once."""
    two = [("interleaved", 5), ("zb-interleaved", 9), ("zb-2p", 4), ("zb-v", 16), ("dualpipev", 15), ("1f1b", 9), ("gpipe", 4),
           ("zb-h1", 7)]
    four = [("interleaved", 11), ("zb-v", 16)]
    strictest = "strict, plain"
    return [pipeline(2, *case, strictest) for case in two] + [pipeline(4, *case, strictest) for case in four] + \
        [pipeline(2, *case, "cudaMalloc waits", **MALLOC) for case in two if case[0] in FREE_TO_ALLOCATE] + \
        [pipeline(2, *case, "cudaMalloc waits, room for 1") for case in two if case[0] not in FREE_TO_ALLOCATE] + \
        [pipeline(2, *case, name) for case, name in zip(two[::2], itertools.cycle(ROOMS))] + OTHERS


OTHERS = [
    *(filled(dp=2, zero=zero) for zero in range(4)),
    filled(tp=2, sequence_parallel=True),
    filled(dp=2, offload="optimizer"),
    filled(dp=2, zero=3, offload="params"),
    filled(dp=2, graph=True),
    filled(dp=2, pp=2, zero=2, schedule="zb-h1"),
    # What is expected to hang: each has its cure in the product, which is taken away here.
    pipeline(2, "interleaved", 5, "in NCCL's order of launches", HANGS, NCCL_LAUNCH_ORDER_IMPLICIT="1"),
    pipeline(2, "interleaved", 9, "in NCCL's order of launches", HANGS, NCCL_LAUNCH_ORDER_IMPLICIT="1"),
    pipeline(4, "interleaved", 9, "in NCCL's order of launches", HANGS, NCCL_LAUNCH_ORDER_IMPLICIT="1"),
    pipeline(2, "zb-v", 16, "where cudaMalloc waits", HANGS, **MALLOC),
    pipeline(2, "zb-2p", 4, "with kernels loaded lazily", HANGS, **LAZY, CUDA_MODULE_LOADING="LAZY"),
    pipeline(2, "1f1b", 4, "with one queue", HANGS, CUDA_DEVICE_MAX_CONNECTIONS="1"),
    pipeline(2, "gpipe", 4, "with one queue", CUDA_DEVICE_MAX_CONNECTIONS="1"),
]


class Shop:
    def __init__(self, folder):
        self.folder, self.one_rank = folder, {}
        (folder / "text.txt").write_text(some_text())

    def train(self, name, flags, launch=(), **environment):
        """Its exit status and stderr, and losses and norms of its steps."""
        out = self.folder / name
        command = [*launch, minigpt, "train", *words(**MODEL | dict(data=self.folder / "text.txt", out=out) | flags)]
        with Run(list(map(str, command)), f"{out}.stderr", **environment) as job:
            try:
                status = job.finish(120)
            except subprocess.TimeoutExpired:
                status = "none: no end within 120 s"
        metrics = out / "metrics.jsonl"
        records = map(json.loads, metrics.read_text().splitlines() if metrics.exists() else [])
        return status, job.stderr(), [r[key] for r in records for key in ("loss", "grad_norm")]

    def expected(self, case):
        layers = case.mesh["layers"]
        key = f"one rank {layers} {case.micros}"
        if key not in self.one_rank:
            self.one_rank[key] = self.train(key, dict(layers=layers, global_batch=case.micros))[2]
        assert len(self.one_rank[key]) == 4, self.one_rank
        return self.one_rank[key]

    def check(self, number, case):
        """What is wrong with it; empty for nothing."""
        flags = dict(device="cuda", comm="nccl", global_batch=case.micros) | case.mesh
        environment = dict(GPU_ON_CPU_DEVICES="4", TRIAX_TIMEOUT="3" if case.status else "30")
        status, said, got = self.train(f"case {number}", flags, mpirun(launcher, case.ranks()), **environment | case.environment)
        expected = self.expected(case)
        if status != case.status:
            return f"exit status {status}, expected {case.status}\n{said}"
        equal = len(got) == len(expected) and all(math.isclose(a, b, rel_tol=1e-5) for a, b in zip(got, expected))
        return "" if case.status or equal else f"{got}; expected {expected}"


def run(cases, folder):
    """The names of those that failed."""
    shop, failed = Shop(folder), []
    for case in cases:
        shop.expected(case)

    def one(numbered):
        began = time.monotonic()
        return numbered[1].name, shop.check(*numbered), time.monotonic() - began

    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        for name, wrong, took in pool.map(one, enumerate(cases)):
            print(f"{name}: {wrong or 'ok'} ({took:.1f} s)", flush=True)
            failed += [name] if wrong else []
    return failed


if __name__ == "__main__":
    all_wanted = "--all" in wanted
    parts = [w for w in wanted if w != "--all"]
    cases = [c for c in (all_cases() if all_wanted or parts else chosen_cases())
             if not parts or any(part in c.name for part in parts)]
    with tempfile.TemporaryDirectory(prefix="triax-strict-") as path:
        failed = run(cases, pathlib.Path(path))
    print(f"{len(cases) - len(failed)} of {len(cases)} as expected", *failed, sep="\n")
    sys.exit(bool(failed))
