"""mpi_parity_test.py MINIGPT MPIRUN: processes train what one does, under plain mpirun and under
scripts/launch.sh: the same loss, within 1e-6 of it, in every one of 50 steps."""

import os
import pathlib
import subprocess
import sys
import tempfile

from minigpt_program import Run, metrics, mpirun, some_text, words

minigpt, launcher = sys.argv[1], sys.argv[2]
LAUNCH = pathlib.Path(__file__).resolve().parents[3] / "scripts/launch.sh"
STEPS = 50
MODEL = dict(layers=2, heads=2, width=32, context=32, dropout=0.1, micro_batch=2, steps=STEPS, warmup=5,
             lr=0.001, val_every=0, val_fraction=0.01)
CUBE = dict(dp=2, pp=2, tp=2)


def no_buffering():
    """An environment in which a send ends only when it is received: no shared memory under triax, synchronous
    sends, and from Open MPI the least that it takes as the limit below which it sends ahead."""
    environment = dict(TRIAX_WINDOW="off", TRIAX_SYNCHRONOUS_SENDS="on")
    limit = {f"OMPI_MCA_btl_{btl}_eager_limit": "64" for btl in ("vader", "sm")}  # Open MPI 4, 5
    limit["OMPI_MCA_pml"] = "ob1"
    info = pathlib.Path(launcher).with_name("ompi_info")
    if info.exists():
        told = subprocess.run([info, "--all", "--parsable"], env=dict(os.environ, **limit), text=True,
                              capture_output=True, check=True).stdout
        assert "_eager_limit:value:64" in told, "Open MPI does not know the limit any more"
        environment.update(limit)
    return environment


def train(path, command, flags, environment={}):
    # A text without rare characters: Adam's first update of a row is little more than its gradient's signs,
    # and where that is near 0 they are a matter of rounding, which the norm of later steps shows.
    text = path / "text.txt"
    text.write_text(some_text(20000))
    run = path / "-".join(f"{k}{v}" for k, v in flags.items())
    command = [*command, minigpt, "train", *words(**(MODEL | flags), data=text, out=run)]
    with Run(command, path / "stderr.txt", TRIAX_TIMEOUT="30", **environment) as job:
        assert job.finish() == 0, f"{flags}:\n{job.stderr()}"
    records = metrics(run)
    assert [r["step"] for r in records] == list(range(1, STEPS + 1))
    return records


def assert_close(ours, expected, relative, what):
    assert abs(ours - expected) <= relative * abs(expected), f"{what}: {ours}, on one rank {expected}"


def compare(what, records, one):
    for ours, expected in zip(records, one):
        at = f"{what}, step {expected['step']}"
        assert_close(ours["loss"], expected["loss"], 1e-6, f"{at}: loss")
        assert_close(ours["grad_norm"], expected["grad_norm"], 2e-6, f"{at}: gradient norm")
        assert ours["lr"] == expected["lr"] and ours["tokens"] == expected["tokens"], at
        assert ("val_loss" in ours) == ("val_loss" in expected), at
        if "val_loss" in ours:
            assert_close(ours["val_loss"], expected["val_loss"], 1e-6, f"{at}: validation")
    print(f"{what}: as one rank", flush=True)


def three_ranks(path):
    one = train(path, [], dict(global_batch=12))
    compare("3 ranks", train(path, mpirun(launcher, 3), dict(global_batch=12, dp=3)), one)


def eight_ranks(path):
    one = train(path, [], dict(global_batch=8))
    assert one[-1]["loss"] < one[0]["loss"] - 0.3, "nothing was learnt"
    launch = [LAUNCH, "-n", "8", "--"]
    for zero in range(4):
        flags = dict(CUBE, zero=zero, global_batch=8)
        compare(f"2 x 2 x 2, ZeRO {zero}", train(path, launch, flags), one)
    flags = dict(CUBE, zero=3, global_batch=8, schedule="zb-h1", sequence_parallel=True)
    compare("2 x 2 x 2, ZeRO 3, zb-h1, sequence parallel, nothing buffered",
            train(path, launch, flags, no_buffering()), one)


with tempfile.TemporaryDirectory(prefix="triax-parity-") as name:
    three_ranks(pathlib.Path(name))
    eight_ranks(pathlib.Path(name))
