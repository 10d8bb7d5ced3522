"""run_directory_test.py MINIGPT MPIRUN [TEST..]: a run directory belongs to one run. What another start could destroy
stays as it is, what may not change on resume is refused, what may is said; a stopped run saves first.

MPIRUN may be empty: then ranks are threads only. TRIAX_SECONDS: in which a stopped run has saved (2)."""

import json
import os
import pathlib
import random
import shutil
import signal
import socket
import sys
import tempfile
import time

from minigpt_program import (MODEL, Run, assert_no_leftovers, assert_same_run, files_of, kill, metrics, mpirun, newest_step,
                             some_text, wait_until, words)

minigpt, launcher = sys.argv[1], sys.argv[2]
seconds = float(os.environ.get("TRIAX_SECONDS", "2"))


class Workshop:
    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.text = self / "text.txt"
        self.text.write_text(some_text())
        self.output = ""  # of the last program that ended

    def __truediv__(self, name):
        return self.path / name

    def command(self, launch=(), **flags):
        flags = dict(MODEL, data=self.text, steps=20) | flags
        return [*launch, minigpt, "train", *words(**flags)]

    def start(self, command, name="last"):
        return Run([str(word) for word in command], self / f"{name}.err", self / f"{name}.out")

    def ends(self, code, *parts, command=None, **flags):
        """Its output and its errors have all `parts`."""
        with self.start(command or self.command(**flags)) as job:
            got, error = job.finish(), job.stderr()
        self.output = (self / "last.out").read_text()
        assert got == code, f"exit code {got}, expected {code}\n{error}\n{self.output}"
        for part in parts:
            assert str(part) in self.output + error, f"no `{part}` in\n{self.output}\n{error}"


def configuration_of_another_run(shop):
    """The saved configuration repeats a run without pointing into its directory."""
    first, again, resumed = shop / "first", shop / "again", shop / "resumed"
    shop.ends(0, out=first)
    shop.ends(0, out=resumed, resume=first / "step-20", steps=25)
    for run, flags in (first, []), (resumed, []), (first, ["--metrics", shop / "own.jsonl"]):
        before = files_of(run)
        out = shop / f"again{len(flags)}{run.name}"
        shop.ends(0, command=[minigpt, "train", "--config", run / "config.toml", "--out", out, *flags])
        assert files_of(run) == before, f"training with {run}/config.toml changed {run}"
        steps = 25 if run == resumed else 20
        assert newest_step(out) == steps
        if not flags:
            assert [r["step"] for r in metrics(out)] == list(range(1, steps + 1))
    shop.ends(78, "own.jsonl exists", out=again, metrics=shop / "own.jsonl")


def two_starts(shop):
    """The second is refused while the first lives, killed or not, and the first goes on."""
    for processes in [False, True] if launcher else [False]:
        run = shop / f"shared{processes}"
        launch = mpirun(launcher, 2) if processes else []
        with shop.start(shop.command(launch, out=run, steps=100000, save_every=1, keep=3), "first") as job:
            assert wait_until(lambda: newest_step(run) > 2), job.stderr()
            owner = job.ranks() if processes else [job.process.pid]
            for resume in {}, dict(resume="auto"):
                step = newest_step(run)
                shop.ends(78, "is in use by process", f"on {socket.gethostname()} since", "Nothing was changed",
                          command=shop.command(launch, out=run, steps=100000, **resume))
                said = (shop / "last.err").read_text()
                assert any(f"process {pid} on" in said for pid in owner), f"{owner}: {said}"
                assert wait_until(lambda: newest_step(run) > step + 2), f"the first run stands still\n{job.stderr()}"
            kill(job.process.pid, signal.SIGUSR1)
            assert job.finish() == 75, job.stderr()
        step = newest_step(run)
        assert [r["step"] for r in metrics(run)] == list(range(1, step + 1)), "the metrics are mixed"
        assert_no_leftovers(run)
        shop.ends(0, f"resumed after step {step}", out=run, steps=step + 3, resume="auto")
        # A killed owner holds nothing.
        with shop.start(shop.command(out=run, steps=100000, resume="auto"), "killed") as job:
            assert wait_until(lambda: len(metrics(run)) > step + 3), job.stderr()
        shop.ends(0, out=run, steps=step + 5, resume="auto")


def stops(shop):
    """A signal during a validation, or a step, of many seconds or a few hundred milliseconds."""
    text = shop / "long.txt"
    text.write_text(some_text(400_000) * 5)
    validating = dict(val_every=1, val_fraction=0.95, micro_batch=1, global_batch=1, context=8)
    stepping = dict(val_fraction=0, layers=4, heads=4, width=128, context=64, micro_batch=1, global_batch=16)
    for name, flags in ("validating", validating), ("stepping", stepping):
        run = shop / name
        with shop.start(shop.command(out=run, data=text, steps=1000, **flags), name) as job:
            printed = shop / f"{name}.out"
            assert wait_until(lambda: "run directory" in printed.read_text()), job.stderr()
            time.sleep(1.5)
            kill(job.process.pid, signal.SIGTERM)
            begun = time.monotonic()
            assert wait_until(lambda: job.process.poll() is not None, 10 * seconds), f"{name}: does not stop"
            took = time.monotonic() - begun
            assert job.finish() == 75, f"{name}: exit code {job.finish()}\n{job.stderr()}"
        step = newest_step(run)
        records = metrics(run)
        assert len(records) == step > 0 and "val_loss" not in records[-1], f"{name}: {records[-1:]}, step-{step}"
        assert name == "stepping" or step == 1, f"the signal met step {step}, not the first validation"
        assert f"step-{step} is saved" in printed.read_text() and "--resume auto" in printed.read_text()
        assert took < seconds, f"{name}: stopped after {took:.1f} s"
        print(f"  {name}: stopped after {took:.2f} s, step {step}")


def other_data(shop):
    """The hash is of all the data: what is held out too."""
    letters = list(shop.text.read_text())
    letters[-100:] = random.Random(2).sample(letters[-100:], 100)
    (shop / "other.txt").write_text("".join(letters))
    run = shop / "data"
    shop.ends(0, out=run)
    before = files_of(run)
    shop.ends(78, "other held-out samples", "start a new run directory", out=run, resume="auto", steps=25,
              data=shop / "other.txt")
    shop.ends(78, "with val-fraction 0.1", out=run, resume="auto", steps=25, val_fraction=0.2)
    assert files_of(run) == before, "what was refused changed the run"
    # Where the text lies is no matter.
    (shop / "moved.txt").write_text(shop.text.read_text())
    shop.ends(0, out=run, resume="auto", steps=25, data=shop / "moved.txt")
    if launcher:  # each rank in a directory of its own, where the text has the same name
        for rank, text in enumerate([shop.text.read_text(), "".join(letters)]):
            (shop / f"rank{rank}").mkdir()
            (shop / f"rank{rank}/same.txt").write_text(text)
        each = dict(data="same.txt", out=shop / "both")
        first, second = (shop.command(["-np", "1", "--wdir", shop / f"rank{rank}"], **each) for rank in range(2))
        shop.ends(78, "ranks disagree", "rank 0: held-out samples = ", "rank 1: held-out samples = ",
                  command=mpirun(launcher, 1)[:1] + mpirun(launcher, 1)[3:] + first + [":"] + second)
        assert not (shop / "both").exists()


def changes(shop):
    """Of a setting that may change on resume one line tells, and it is at work; others are refused."""
    base = shop / "base"
    fp16 = dict(precision="fp16", warmup=0)
    shop.ends(0, out=base, **fp16)

    def resumed(name, **flags):
        run = shop / name
        shop.ends(0, out=run, resume=base / "step-20", **(dict(fp16, steps=24) | flags))
        return metrics(run)

    same = resumed("same")
    for name, flags, lines in [
            ("lr", dict(lr=0.002), ["lr was 0.001, now 0.002", "min-lr was 0.0001, now 0.0002"]),
            ("dropout", dict(dropout=0.5), ["dropout was 0.1, now 0.5"]),
            ("steps", dict(steps=26), ["steps was 20, now 26"]),
            ("clip", dict(clip=0.001), ["clip was 1.0, now 0.001"]),
            ("loss-scale", dict(loss_scale=256), ["loss-scale was 0.0, now 256.0"])]:
        records = resumed(name, **flags)
        said = [line for line in shop.output.splitlines() if line.startswith("changed since the checkpoint: ")]
        wanted = lines if name == "steps" else ["steps was 20, now 24"] + lines
        assert sorted(line.split(": ", 1)[1] for line in said) == sorted(wanted), f"{name}: {said}"
        assert [r["step"] for r in records][:4] == [21, 22, 23, 24]
        assert records[:4] != same, f"{name} changed nothing"
        if name == "loss-scale":
            assert records[0]["loss_scale"] == 256
    for name, value in ("seed", 2), ("precision", "bf16"), ("width", 32), ("heads", 1):
        shop.ends(78, f"with {name} ", "asks for", out=base, resume="auto",
                  **(dict(fp16, steps=24) | {name.replace("-", "_"): value}))
    shop.ends(78, "with width 16; this run asks for 32", "--resume-changed does not allow it", out=base, resume="auto",
              resume_changed=True, **(fp16 | dict(width=32)))
    assert newest_step(base) == 20


def allowed_changes(shop):
    """With --resume-changed another batch and precision are said, and stand in metrics, configuration and checkpoint."""
    run = shop / "changed"
    shop.ends(0, out=run, precision="bf16")
    flags = dict(out=run, resume="auto", steps=24, precision="fp32", global_batch=16)
    shop.ends(78, "--resume-changed allows the change", **flags)
    shop.ends(0, "changed since the checkpoint: precision was \"bf16\", now \"fp32\"",
              "changed since the checkpoint: global-batch was 8, now 16", resume_changed=True, **flags)
    records = metrics(run)
    assert [r["step"] for r in records if "changed" in r] == [21], records
    assert records[20]["changed"] == 'global-batch was 8, now 16; precision was "bf16", now "fp32"'
    assert [r["tokens"] for r in records[18:22]] == [64, 64, 128, 128], records[18:22]
    config = (run / "config.toml").read_text()
    assert 'precision = "fp32"' in config and "global-batch = 16" in config and "resume" not in config, config
    shop.ends(0, "resumed after step 24", **(flags | dict(steps=26)))
    assert "changed since the checkpoint: steps was 24, now 26" in shop.output and "was 8" not in shop.output


def nothing_left_to_do(shop):
    run = shop / "finished"
    shop.ends(0, out=run)
    before = files_of(run)
    shop.ends(0, "already at step 20", "raise --steps", out=run, resume="auto")
    assert files_of(run) == before, "nothing was to be done, and files changed"
    shop.ends(0, "resumed after step 20", out=run, resume="auto", steps=22)
    assert json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["step"] == 22


def resumed(shop, name, **flags):
    """A run that goes on after its third step is the run that did it all."""
    whole, halves = shop / f"{name}-whole", shop / f"{name}-halves"
    shop.ends(0, out=whole, **flags)
    shop.ends(0, out=halves, **dict(flags, save_every=3, keep=9))
    for path in halves.glob("step-*"):
        if path.name != "step-3":
            shutil.rmtree(path)
    shop.ends(0, "resumed after step 3", out=halves, resume="auto", **flags)
    assert_same_run(halves, whole, 20)
    return metrics(whole)


def skipped_steps(shop):
    """The learning rate follows updates, not steps, and a resumed run goes on with both and the loss scale."""
    # One token a step: half precision cannot hold the first loss scale, 65536, as a gradient.
    records = resumed(shop, "skipped", precision="fp16", context=1, micro_batch=1, global_batch=1, dropout=0,
                      warmup=10, lr=0.001, val_fraction=0, val_every=0)
    updates = 0
    for record in records[:10]:
        assert abs(record["lr"] - 0.001 * (updates + 1) / 10) < 1e-12, record
        updates += not record["skipped"]
    assert 0 < updates < 10, "no step was skipped, or all"


def slices(shop):
    """Each rank loads its slice, and gets the others' before the first step."""
    for zero in 1, 3:
        resumed(shop, f"zero{zero}", comm="threads", ranks=2, zero=zero, val_every=0)


def validation(shop):
    """It covers all that is held out, once, on any number of ranks."""
    losses = []
    for ranks in 1, 3:
        run = shop / f"validated{ranks}"
        shop.ends(0, out=run, comm="threads", ranks=ranks, global_batch=6, micro_batch=2, steps=1, val_every=1,
                  warmup=0)
        losses.append(metrics(run)[0]["val_loss"])
    assert abs(losses[0] - losses[1]) < 1e-6 * losses[0], losses


def closed_stdout(shop):
    """What is printed lands in no file of the run."""
    run = shop / "closed"
    shop.ends(0, command=["bash", "-c", 'exec "$0" "$@" >&-', *shop.command(out=run)])
    assert "step" not in (run / "lock").read_text(), (run / "lock").read_text()


def reader_that_leaves(shop):
    """A training whose output goes into `head` trains on."""
    run = shop / "head"
    shop.ends(0, command=["bash", "-c", '"$0" "$@" | head -c 1 >/dev/null; exit ${PIPESTATUS[0]}', *shop.command(out=run)])
    assert newest_step(run) == 20, newest_step(run)


TESTS = [configuration_of_another_run, two_starts, stops, other_data, changes, allowed_changes, nothing_left_to_do,
         skipped_steps, slices, validation, closed_stdout, reader_that_leaves]
with tempfile.TemporaryDirectory(prefix="triax-run-") as path:
    workshop = Workshop(path)
    for test in TESTS:
        if sys.argv[3:] and test.__name__ not in sys.argv[3:]:
            continue
        begun = time.monotonic()
        test(workshop)
        print(f"{test.__name__}: {time.monotonic() - begun:.1f} s", flush=True)
