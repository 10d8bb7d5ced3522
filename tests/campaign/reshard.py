"""reshard.py MINIGPT [SEED [MESHES]]: a checkpoint of any mesh goes on on any other. Every ordered pair of MESHES (20)
meshes: two steps on the one, two more on the other, with --bitwise; in the end the tensors are those of one rank that made
all four."""

import concurrent.futures
import itertools
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "examples/programs"))
from minigpt_program import RANKS_SHARING_CORES, other_tensors, some_text  # noqa: E402

minigpt, seed, count = os.path.abspath(sys.argv[1]), int((sys.argv[2:] + ["1"])[0]), int((sys.argv[3:] + ["20"])[0])
COMMON = ("--layers 4 --heads 4 --width 16 --context 8 --micro-batch 1 --global-batch 12 --warmup 0 --val-every 0 --bitwise "
          "--tp-slices 4 --lr 0.001 --min-lr 0.001 --comm threads").split()
MESHES = ["", "--dp 2", "--dp 2 --zero 1", "--dp 2 --zero 2", "--dp 2 --zero 3", "--dp 3 --zero 1", "--dp 3 --zero 3",
          "--dp 4 --zero 2", "--tp 2", "--tp 4", "--tp 4 --pp 2 --zero 1", "--pp 2", "--pp 4 --schedule 1f1b",
          "--pp 2 --schedule interleaved --chunks 2", "--pp 2 --schedule zb-h1 --zero 1 --dp 2", "--dp 2 --tp 2 --zero 3",
          "--dp 2 --pp 2 --zero 2", "--pp 2 --tp 2 --offload optimizer", "--dp 2 --pp 2 --tp 2 --zero 1",
          "--dp 3 --pp 2 --zero 3 --recompute block"]


def ranks(mesh):
    words = mesh.split()
    return str(math.prod(int(size) for name, size in zip(words, words[1:]) if name in ("--dp", "--pp", "--tp")))


def train(folder, out, mesh, *flags):
    command = [minigpt, "train", *COMMON, "--data", "text.txt", "--out", out, *mesh.split(), "--ranks", ranks(mesh), *flags]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=RANKS_SHARING_CORES, timeout=120)
    return "" if done.returncode == 0 else f"exit code {done.returncode}\n{done.stderr}"


def pair(folder, a, b):
    """What is wrong of going on on mesh b with what mesh a saved."""
    out = f"{a}-{b}"
    wrong = train(folder, out, MESHES[b], "--steps", "4", "--resume", f"{a}/step-2") or \
        other_tensors(folder, "whole/step-4", f"{out}/step-4")
    subprocess.run(["rm", "-r", folder / out], check=False)
    return f"from `{MESHES[a]}` on `{MESHES[b]}`: {wrong}" if wrong else ""


with tempfile.TemporaryDirectory(prefix="triax-reshard-") as path:
    folder = pathlib.Path(path)
    (folder / "text.txt").write_text(some_text())
    chosen = sorted(random.Random(seed).sample(range(len(MESHES)), count))
    wrong = [train(folder, "whole", "", "--steps", "4")]
    for a in chosen:
        wrong.append(train(folder, str(a), MESHES[a], "--steps", "2"))
    assert not any(wrong), "\n".join(wrong)
    pairs = list(itertools.permutations(chosen, 2))
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        wrong = [text for text in pool.map(lambda ab: pair(folder, *ab), pairs) if text]
print("\n".join(wrong))
print(f"{len(pairs) - len(wrong)} of {len(pairs)} pairs")
sys.exit(bool(wrong))
