"""nccl_processes_test.py MINIGPT LLAMA MPIRUN [KILLS [SEED]]: ranks that mpirun has started, each with a GPU of its own over NCCL,
train as one rank on the CPU; and when one is killed, the job ends soon and leaves nothing behind.

MINIGPT and LLAMA are those with GPUs made of CPU threads, whose NCCL meets across processes. By hand: 50 kills."""

import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples/programs"))
from minigpt_program import RANKS_SHARING_CORES, Run, kill, mpirun, some_text, wait_until, words  # noqa: E402

minigpt, llama, launcher = sys.argv[1:4]
kills = int(sys.argv[4]) if len(sys.argv) > 4 else 2
pick = random.Random(sys.argv[5] if len(sys.argv) > 5 else "kills")
MODEL = dict(layers=4, heads=4, width=16, context=8, dropout=0.1, micro_batch=1, global_batch=8, warmup=0, val_fraction=0)
MESHES = [dict(dp=2), dict(dp=2, cp=2, zero=1), dict(cp=4, cp_form="gather"), dict(pp=2, cp=2, cp_form="heads", schedule="zb-h1"),
          dict(dp=8, zero=1), dict(dp=4, zero=2), dict(dp=2, tp=2, zero=3), dict(tp=4, sequence_parallel=True, tp_pieces=2),
          dict(pp=2, schedule="interleaved"), dict(pp=4, schedule="zb-h1"), dict(pp=2, schedule="zb-v"),
          dict(dp=2, pp=2, tp=2, zero=2, tp_pieces=3), dict(pp=2, tp=2, schedule="zb-interleaved"), dict(dp=2, pp=2, schedule="zb-2p"),
          dict(dp=4, tp=2, zero=3, sequence_parallel=True, recompute="block")]
MIXTURE = dict(layers=2, heads=4, kv_heads=2, width=16, hidden=12, context=8, micro_batch=1, global_batch=8, warmup=0, val_fraction=0,
               experts=8, balance=0.1, balance_bias=0.01, capacity=1.25)
MESHES_OF_EXPERTS = [dict(ep=2, dp=2, zero=2), dict(ep=4, cp=2), dict(ep=2, pp=2, tp=2, sequence_parallel=True, schedule="zb-h1")]
failures = []


def ranks_of(mesh):
    return math.prod(mesh.get(axis, 1) for axis in ("dp", "pp", "ep", "cp", "tp"))


def command(folder, name, mesh, program=minigpt, model=MODEL, **flags):
    own = dict(model, data=folder / "text.txt", out=folder / name, device="cuda", comm="nccl", **mesh)
    return [str(w) for w in mpirun(launcher, ranks_of(mesh)) + [program, "train", *words(**(own | flags))]]


def losses(folder, name):
    lines = [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
    return [(line["loss"], line["grad_norm"]) for line in lines if "loss" in line]


def train_as_one_rank(folder, program, model, meshes):
    one = f"one of {pathlib.Path(program).name}"
    flags = words(**dict(model, data=folder / "text.txt", out=folder / one, steps=2))
    subprocess.run([program, "train", *map(str, flags)], check=True, capture_output=True, env=RANKS_SHARING_CORES)
    expected = losses(folder, one)
    assert len(expected) == 2, expected
    for number, mesh in enumerate(meshes):
        name = f"{one}, mesh {number}"
        with Run(command(folder, name, mesh, program, model, steps=2), folder / "stderr.txt", folder / "stdout.txt",
                 GPU_ON_CPU_DEVICES="8", TRIAX_TIMEOUT="60") as job:
            status = job.finish(120)
            said = (folder / "stdout.txt").read_text() + job.stderr()
        got = losses(folder, name) if status == 0 else []
        equal = len(got) == len(expected) and all(
            math.isclose(a, b, rel_tol=1e-5) for pair in zip(got, expected) for a, b in zip(*pair))
        if not equal or "transport: NCCL" not in said:
            failures.append(f"{mesh}: exit status {status}, {got}; expected {expected}\n{said}")


def killed(folder, number):
    """One rank of a running job is killed: soon all have ended, with an error."""
    mesh = pick.choice([m for m in MESHES if ranks_of(m) >= 4])
    metrics = folder / f"killed {number}" / "metrics.jsonl"
    with Run(command(folder, f"killed {number}", mesh, steps=10000), folder / "stderr.txt", GPU_ON_CPU_DEVICES="8") as job:
        wait_until(lambda: metrics.exists() and metrics.read_text().count("\n") > 2 or job.process.poll() is not None, 120)
        time.sleep(pick.random())
        ranks = [pid for pid in job.ranks() if "train" in pathlib.Path(f"/proc/{pid}/cmdline").read_text()]
        kill(pick.choice(ranks))
        began = time.monotonic()
        try:
            status = job.finish(20)
        except subprocess.TimeoutExpired:
            status = None
        took, said = time.monotonic() - began, job.stderr()
        wait_until(lambda: not job.processes(), 5)
        left = job.processes()
    if not status or took > 5 or left:
        failures.append(f"killed, {mesh}: exit status {status} after {took:.1f} s, {len(left)} left\n{said}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="triax-nccl-") as path:
        place = pathlib.Path(path)
        (place / "text.txt").write_text(some_text())
        train_as_one_rank(place, minigpt, MODEL, MESHES)
        train_as_one_rank(place, llama, MIXTURE, MESHES_OF_EXPERTS)
        for number in range(kills):
            killed(place, number)
    print("\n".join(failures) or f"{len(MESHES) + len(MESHES_OF_EXPERTS)} meshes train as one rank, {kills} jobs ended soon after a kill")
    sys.exit(bool(failures))
