"""lost_ranks_test.py MINIGPT MPIRUN [TEST ...]: jobs under scripts/launch.sh whose ranks have a GPU each over NCCL, and lose one.

One that throws ends the job soon, with its own code and report, while the others wait in NCCL. After one was killed,
--restarts and --elastic go on with the bits of runs that were left alone. TRIAX_SECONDS: what the end of a job may take (5)."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples/programs"))
from minigpt_program import (RANKS_SHARING_CORES, Run, assert_no_leftovers, kill, other_tensors, ranks_of, run_each,  # noqa: E402
                             wait_until, words)

minigpt, wanted = os.path.abspath(sys.argv[1]), sys.argv[3:]
LAUNCH = pathlib.Path(__file__).resolve().parents[3] / "scripts/launch.sh"
seconds = float(os.environ.get("TRIAX_SECONDS", "5"))
STEPS, SAVE_EVERY = 16, 4
MODEL = dict(layers=4, heads=2, width=16, context=8, dropout=0.1, micro_batch=1, global_batch=6, warmup=2, val_fraction=0,
             steps=STEPS, save_every=SAVE_EVERY, keep=9, device="cuda", comm="nccl")
MESH = dict(dp=2, pp=2)
ON_RANK_1 = '[ $OMPI_COMM_WORLD_RANK = 1 ] && export "$0"; exec "$@"'


def job(shop, name, ranks, *options, on_rank_1="", **flags):
    command = [minigpt, "train", *words(**MODEL | dict(data=shop / "text.txt", out=shop / name) | flags)]
    if on_rank_1:
        command = ["sh", "-c", ON_RANK_1, on_rank_1, *command]
    launch = [LAUNCH, "-n", ranks, *options, "--", *command]
    return Run(list(map(str, launch)), shop / f"{name}.stderr", GPU_ON_CPU_DEVICES="4", GPU_ON_CPU_MEMORY=str(1 << 26),
               TRIAX_TIMEOUT="60")


def finish(run, code=0):
    status = run.finish(120)
    assert status == code, f"exit status {status}, expected {code}\n{run.stderr()}"


def losses(folder):
    records = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return {r["step"]: (r["loss"], r["grad_norm"], r["lr"]) for r in records}


def assert_same(shop, run, quiet, after=0):
    """Bits of the losses after a step, and of the last checkpoints."""
    ours, theirs = losses(shop / run), losses(shop / quiet)
    assert list(ours) == list(range(1, STEPS + 1)), f"{run}: steps {list(ours)}"
    for step in range(after + 1, STEPS + 1):
        assert ours[step] == theirs[step], f"{run}, step {step}: {ours[step]}, expected {theirs[step]}"
    differs = other_tensors(shop, f"{quiet}/step-{STEPS}", f"{run}/step-{STEPS}")
    assert not differs, f"{run}: the last checkpoints differ\n{differs}"
    assert_no_leftovers(shop / run)


def kill_a_rank(run, folder, after):
    """As soon as a step is done. Returns what launch.sh says of the restart."""
    def steps():
        metrics = folder / "metrics.jsonl"
        return metrics.read_bytes().count(b"\n") if metrics.exists() else 0

    def is_rank(pid):
        try:
            return b"\0OMPI_COMM_WORLD_RANK=" in pathlib.Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False

    def said():
        return [line for line in run.stderr().splitlines() if line.startswith("launch: restart")]

    assert wait_until(lambda: steps() >= after or run.process.poll() is not None, 60), f"no step {after}\n{run.stderr()}"
    before = len(said())
    ranks = list(filter(is_rank, ranks_of(folder)))
    assert ranks, f"no ranks\n{run.stderr()}"
    kill(ranks[-1])
    assert wait_until(lambda: len(said()) > before, 30), f"no restart\n{run.stderr()}"
    return said()[-1]


def restarts(shop):
    with job(shop, "quiet", 4, **MESH) as run:
        finish(run)
    with job(shop, "restarted", 4, "--restarts", 3, **MESH) as run:
        said = [kill_a_rank(run, shop / "restarted", step) for step in (6, 11)]
        finish(run)
    assert "newest checkpoint step-" in said[0], said
    assert_same(shop, "restarted", "quiet")


def elastic(shop):
    """With the bits of a run that changed to the new mesh where nobody was lost."""
    with job(shop, "shrunk", 4, "--restarts", 3, "--elastic", **MESH) as run:
        said = kill_a_rank(run, shop / "shrunk", 6)
        finish(run)
    found = re.search(r"newest checkpoint step-(\d+); (\d) ranks: --dp (\d) --pp (\d) --tp (\d)", said)
    assert found, said
    step, ranks, dp, pp, tp = map(int, found.groups())
    assert ranks < 4 and step >= SAVE_EVERY, said
    with job(shop, "changed", 4, **MESH) as run:
        finish(run)
    for newer in range(step + SAVE_EVERY, STEPS + 1, SAVE_EVERY):
        shutil.rmtree(shop / "changed" / f"step-{newer}")
    before = losses(shop / "changed")
    with job(shop, "changed", ranks, dp=dp, pp=pp, tp=tp, resume="auto") as run:
        finish(run)
    assert_same(shop, "shrunk", "changed")
    ours = losses(shop / "shrunk")
    assert all(ours[n] == before[n] for n in range(1, step + 1)), "other bits before the loss"


def throws(shop, name, code, parts, mesh, on_rank_1, ranks=2):
    """Rank 1 fails alone: the job ends soon, with its report."""
    began = time.monotonic()
    with job(shop, name, ranks, on_rank_1=on_rank_1, steps=3, width=32, context=16, **mesh) as run:
        finish(run, code)
        took, said = time.monotonic() - began, run.stderr()
    missing = [part for part in (*parts, "on rank 1 of") if part not in said]
    reports = len(re.findall("^triax: error", said, re.M))
    assert not missing and reports == 1, f"{name}: {reports} reports, without {missing}\n{said}"
    return took, said


def a_rank_that_throws(shop):
    with job(shop, "left alone", 2, dp=2, steps=1) as run:
        began = time.monotonic()
        finish(run)
        start = time.monotonic() - began
    meshes = [dict(dp=2, zero=1), dict(pp=2, schedule="zb-h1"), dict(tp=2)]
    full = "NCCL's buffers no longer fit"
    cases = [(f"NCCL {number}", 71, [full, "calloc", "--micro-batch"], mesh, "GPU_ON_CPU_NCCL_MEMORY=65")
             for number, mesh in enumerate(meshes)]
    # Less and less memory: it ends at another allocation each time.
    cases += [(f"{bytes} bytes, {number}", 71, ["memory", "--micro-batch"], mesh, f"GPU_ON_CPU_MEMORY={bytes}")
              for number, mesh in enumerate(meshes) for bytes in (150_000, 300_000, 450_000)]
    for case in cases:
        took, said = throws(shop, *case)
        assert took < start + seconds, f"{case}: {took:.1f} s, {start:.1f} s without the error\n{said}"
        print(f"  {case[0]}: {took:.1f} s: {said.splitlines()[0] if said else ''}", flush=True)


run_each([a_rank_that_throws, restarts, elastic], wanted, "triax-lost-")
