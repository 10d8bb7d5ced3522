"""mpi_parity_test.py MINIGPT MPIRUN: two and three processes train what one does."""

import math
import pathlib
import sys
import tempfile

from minigpt_program import MODEL, Run, metrics, mpirun, some_text, words

minigpt, launcher = sys.argv[1], sys.argv[2]
STEPS = 20


def train(path, ranks, micro_batch):
    run = path / f"{ranks}-{micro_batch}"
    flags = dict(MODEL, layers=2, width=32, data=path / "text.txt", out=run, steps=STEPS, global_batch=12,
                 micro_batch=micro_batch, lr=0.01)
    command = [minigpt, "train", *words(**flags)]
    with Run(mpirun(launcher, ranks) + command if ranks > 1 else command, path / "stderr.txt") as job:
        assert job.finish() == 0, job.stderr()
    records = metrics(run)
    assert [r["step"] for r in records] == list(range(1, STEPS + 1))
    return records


def assert_close(ours, expected, relative, what):
    assert math.isclose(ours, expected, rel_tol=relative), f"{what}: {ours}, on one rank {expected}"


with tempfile.TemporaryDirectory(prefix="triax-parity-") as name:
    path = pathlib.Path(name)
    (path / "text.txt").write_text(some_text())
    one = train(path, 1, 12)
    assert one[-1]["loss"] < one[0]["loss"] - 0.5, "nothing was learnt"
    for ranks, micro_batch in [(2, 6), (2, 3), (3, 4), (3, 2)]:
        for ours, expected in zip(train(path, ranks, micro_batch), one):
            what = f"{ranks} ranks, micro-batch {micro_batch}, step {expected['step']}"
            assert_close(ours["loss"], expected["loss"], 1e-6, f"{what}: loss")
            assert_close(ours["grad_norm"], expected["grad_norm"], 5e-5, f"{what}: gradient norm")
            assert ours["lr"] == expected["lr"] and ours["tokens"] == expected["tokens"], what
            assert ("val_loss" in ours) == ("val_loss" in expected), what
            if "val_loss" in ours:
                assert_close(ours["val_loss"], expected["val_loss"], 1e-5, f"{what}: validation")
        print(f"{ranks} ranks, micro-batch {micro_batch}: as one rank")
