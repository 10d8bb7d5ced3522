"""resnet_test.py PROGRAM: a narrow ResNet-18 learns the handwritten digits that come with triax, on two ranks whose
batch norms share their statistics, through a stop in between; wrong images are refused."""

import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "programs"))
from minigpt_program import records_of  # noqa: E402

program = pathlib.Path(sys.argv[1]).resolve()


def run(folder, *flags):
    return subprocess.run([program, "train", *flags], cwd=folder, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=1500 if os.environ.get("TRIAX_SANITIZED") else 300,
                          env=dict(os.environ, OMP_NUM_THREADS="1", COLUMNS="200"))


def learns(folder):
    """On another mesh after the stop, with a default spelled out: the schedule of the learning rate is that of all
    steps."""
    flags = "--width 16 --bn-samples 64 --global-batch 64 --val-every 69 --out run --resume auto --lr 0.1 --warmup 40"
    first = run(folder, *flags.split(), *"--comm threads --ranks 2 --micro-batch 32 --steps 69".split())
    assert first.returncode == 0, first.stdout
    mesh = "--comm threads --ranks 2 --pp 2 --micro-batch 64 --zero 1 --steps 138 --workers 1 --augment crop"
    second = run(folder, *flags.split(), *mesh.split())
    assert second.returncode == 0, second.stdout
    records = records_of(folder / "run")
    assert [r["step"] for r in records] == list(range(1, 139))
    assert records[-1]["val_top1"] >= 0.97, f"top-1 of held-out digits: {records[-1]['val_top1']}"
    assert records[-1]["val_top5"] >= records[-1]["val_top1"]
    assert f"top1 {records[-1]['val_top1']:.4f}" in second.stdout, second.stdout


def refuses(folder):
    record = bytes([3]) + bytes(3072)
    cases = {"half.bin": (record * 3 + b"x", 65, "half.bin"), "label.bin": (record + bytes([10]) + bytes(3072), 65, "10")}
    for name, (content, code, part) in cases.items():
        (folder / name).write_bytes(content)
        done = run(folder, "--data", name, "--steps", "1")
        assert done.returncode == code and part in done.stdout, f"{name}: {done.returncode}\n{done.stdout}"
    done = run(folder, "--data", "nowhere", "--steps", "1")
    assert done.returncode == 66 and "nowhere" in done.stdout, done.stdout


def plans(folder):
    done = subprocess.run([program, "plan", "--ranks", "4"], cwd=folder, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=120)
    assert done.returncode == 0 and "dp" in done.stdout, done.stdout


for test in (refuses, plans, learns):
    with tempfile.TemporaryDirectory(prefix="triax-resnet-") as folder:
        test(pathlib.Path(folder))
        print(f"ok  {test.__name__}", flush=True)
