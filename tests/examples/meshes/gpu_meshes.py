"""gpu_meshes.py MINIGPT TEXT DEVICE COMM RANKS: 4 ranks, or 2, reproduce one, in every mesh.

COMM threads: `minigpt parity`, tensor by tensor. COMM mpi or nccl: the same loss and gradient norm in every
one of 20 steps, ranks started by scripts/launch.sh; mpi shares one GPU, nccl has one for each rank (DEVICE
cuda). Exit status 1 if a mesh differs; all are tried.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
MESHES = {  # and their ZeRO stages
    2: [("2x1x1", zero) for zero in range(4)] + [("1x1x2", 0), ("1x2x1", 0)],
    4: [("4x1x1", zero) for zero in range(4)] + [("2x1x2", 1), ("2x2x1", 0), ("1x2x2", 0)],
}
FUSED = "--precision bf16 --context 128 --steps 2 --dropout 0"  # attention by cuDNN, which wants multiples of 64
MODEL = "--layers 4 --heads 4 --width 64 --context 32 --micro-batch 2 --dropout 0.1"
STEPS = 20
LOSS, NORM = 1e-5, 1e-3  # relative; sums of other orders


def run(command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise RuntimeError(f"exit status {done.returncode}: {(done.stdout + done.stderr)[-1500:]}")


def flags_of(mesh, zero):
    dp, pp, tp = mesh.split("x")
    return f"--dp {dp} --pp {pp} --tp {tp} --zero {zero}".split()


def ranks_of(mesh):
    dp, pp, tp = map(int, mesh.split("x"))
    return dp * pp * tp


class Parity:
    """Ranks as threads of one process."""

    def __init__(self, minigpt, text, device):
        self.command = [minigpt, "parity", "--data", text, "--device", device]

    def check(self, mesh, zero):
        run([*self.command, "--mesh", mesh, "--zero", zero])
        if (mesh, zero) == ("2x1x2", 1):
            run([*self.command, "--mesh", mesh, "--zero", zero, *FUSED.split()])


class Training:
    """Ranks as processes, against one."""

    def __init__(self, minigpt, text, device, comm, folder):
        self.comm, self.folder = comm, folder
        self.command = [minigpt, "train", *MODEL.split(), "--steps", STEPS, "--global-batch", 8, "--data", text]
        self.command += ["--warmup", 2, "--val-fraction", 0, "--device", device]
        self.one = self.train("one", [], ["--device", "cuda:0"] if device == "cuda" else [])

    def train(self, name, launcher, flags):
        out = self.folder / name
        run([*launcher, *self.command, "--out", out, *flags])
        records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        if len(records) != STEPS:
            raise RuntimeError(f"{len(records)} steps; expected {STEPS}")
        return records

    def check(self, mesh, zero):
        launcher = [ROOT / "scripts/launch.sh", "-n", ranks_of(mesh), "--"]
        flags = [*flags_of(mesh, zero), "--comm", self.comm]
        for ours, one in zip(self.train(f"{mesh}-{zero}", launcher, flags), self.one):
            for key, relative in (("loss", LOSS), ("grad_norm", NORM)):
                if not abs(ours[key] - one[key]) <= relative * abs(one[key]):
                    raise RuntimeError(f"step {one['step']}: {key} {ours[key]}, on one rank {one[key]}")


def main(minigpt, text, device, comm, ranks):
    failed = False
    with tempfile.TemporaryDirectory(prefix="triax-meshes-") as folder:
        if comm == "threads":
            tried = Parity(minigpt, text, device)
        else:
            tried = Training(minigpt, text, device, comm, pathlib.Path(folder))
        for mesh, zero in MESHES[int(ranks)]:
            try:
                tried.check(mesh, zero)
                print(f"{comm}: {mesh}, ZeRO {zero}: as one rank", flush=True)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                failed = True
                print(f"{comm}: {mesh}, ZeRO {zero}: FAILED: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except RuntimeError as error:
        sys.exit(f"gpu_meshes: {error}")
