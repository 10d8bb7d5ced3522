"""bitwise_test.py MINIGPT MPIRUN LLAMA: --bitwise leaves equal bits, in metrics and checkpoints, whatever the mesh, the
micro-batch, the transport, the number of threads, and where it was stopped and resumed.

MPIRUN may be empty: then ranks are threads only."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from minigpt_program import mpirun, other_tensors, some_text

programs, launcher = dict(gpt=sys.argv[1], llama=sys.argv[3]), sys.argv[2]
COMMON = ("--layers 4 --heads 4 --width 64 --context 64 --bitwise --tp-slices 4 --micro-batch 1 --global-batch 12 --steps 12 --warmup 2 "
          "--val-every 6 --data text.txt")
OF = dict(gpt=COMMON + " --dropout 0.1", llama=COMMON + " --kv-heads 4")
SAYS = ["step", "loss", "grad_norm", "lr", "val_loss", "skipped"]


def run(name, folder, out, flags, launch=(), code=0, **environment):
    command = [*map(str, launch), programs[name], "train", *OF[name].split(), *flags.split(), "--out", out]
    done = subprocess.run(command, cwd=folder, text=True, capture_output=True, timeout=120,
                          env=dict(os.environ, OMP_NUM_THREADS="1", OMPI_MCA_mpi_yield_when_idle="1") | environment)
    assert done.returncode == code, f"{name} {flags}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def metrics(folder, out):
    lines = map(json.loads, (folder / out / "metrics.jsonl").read_text().splitlines())
    return [[line.get(key) for key in SAYS] for line in lines]


def same(name, folder, out, flags, one="one", **how):
    run(name, folder, out, flags, **how)
    assert metrics(folder, one) == metrics(folder, out), f"{name} {flags}: other metrics"
    differs = other_tensors(folder, f"{one}/step-12", f"{out}/step-12")
    assert not differs, f"{name} {flags}\n{differs}"
    print(f"{name} {flags} {how.get('launch', '')}: equal", flush=True)


def meshes(name, folder):
    threads = "--comm threads --ranks"
    rows = [(f"{threads} 2 --dp 2 --zero 1", {}), (f"{threads} 6 --dp 3 --pp 2 --zero 3 --schedule zb-h1", {}),
            (f"{threads} 4 --pp 4 --schedule 1f1b --recompute block", {}), ("--workers 2", dict(OMP_NUM_THREADS="3")),
            (f"{threads} 4 --dp 2 --pp 2 --zero 2 --schedule interleaved --offload optimizer", {}),
            (f"{threads} 2 --tp 2 --sequence-parallel", {}), ("--micro-batch 12", {}),
            (f"{threads} 2 --dp 2 --micro-batch 3 --zero 2 --recompute block", {}),
            (f"{threads} 4 --pp 2 --tp 2 --micro-batch 4 --sequence-parallel --schedule zb-h1", {}),
            (f"{threads} 2 --dp 2 --micro-batch 2 --zero 3 --offload params --offload-dir .", {}), (f"{threads} 8 --tp 4 --pp 2 --zero 1 --schedule zb-h1", {})]
    if launcher:
        rows += [("--pp 2 --zero 2", dict(launch=mpirun(launcher, 4))),
                 ("--tp 2 --zero 1", dict(launch=mpirun(launcher, 4))),
                 ("--tp 2 --pp 2", dict(launch=mpirun(launcher, 4), TRIAX_WINDOW="off")),
                 ("--pp 2 --zero 3 --schedule gpipe", dict(launch=mpirun(launcher, 4), TRIAX_WINDOW="off"))]
    for number, (flags, how) in enumerate(rows):
        same(name, folder, f"mesh{number}", flags, **how)


def stopped_and_resumed_on_other_meshes(name, folder):
    run(name, folder, "parts", "--save-every 4 --comm threads --ranks 4 --pp 2 --zero 3 --micro-batch 2")
    for step, flags in ((8, "--comm threads --ranks 3 --micro-batch 4"), (8, "--comm threads --ranks 4 --tp 4 --sequence-parallel"), (4, "--comm threads --ranks 2 --pp 2 --schedule zb-h1")):
        for later in (folder / "parts").glob("step-*"):
            if int(later.name[5:]) > step:
                subprocess.run(["rm", "-r", later], check=True)
        same(name, folder, "parts", flags + " --save-every 4 --resume auto")


def precisions(name, folder):
    for precision in ("bf16", "fp16"):
        run(name, folder, f"one-{precision}", f"--precision {precision}")
        same(name, folder, precision, f"--precision {precision} --comm threads --ranks 6 --dp 3 --tp 2 --zero 1",
             one=f"one-{precision}")


with tempfile.TemporaryDirectory(prefix="triax-bitwise-") as path:
    for program in programs:
        shop = pathlib.Path(path) / program
        shop.mkdir()
        (shop / "text.txt").write_text(some_text())
        run(program, shop, "one", "")
        meshes(program, shop)
        stopped_and_resumed_on_other_meshes(program, shop)
        precisions(program, shop)
        assert "bitwise with" in run(program, shop, "no", "--comm threads --ranks 3 --tp 3", code=78)
        rows = "--comm threads --ranks 2 --tp 2 --sequence-parallel --context 46"
        assert "bitwise with sequence-parallel" in run(program, shop, "no", rows, code=78)
