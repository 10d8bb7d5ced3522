"""kill_test.py MINIGPT MPIRUN: what is killed at any moment and resumed ends bitwise like the run
that was left alone; what is asked to stop saves first; damaged checkpoints are never loaded.

MPIRUN may be empty: then ranks are threads only. TRIAX_KILLS: how often to kill (20), TRIAX_SEED: when (1).
TRIAX_ONLY: the name of one of the tests."""

import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time

from minigpt_program import (MODEL, Run, assert_no_leftovers, assert_same_run, files_of, kill, metrics, mpirun,
                             newest_step, some_text, wait_until, words)

minigpt, launcher = sys.argv[1], sys.argv[2]
kills = int(os.environ.get("TRIAX_KILLS", "20"))
seed = int(os.environ.get("TRIAX_SEED", "1"))
choice = random.Random(seed)
STEPS = 300


class Workshop:
    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.text = self.path / "text.txt"
        self.text.write_text(some_text())

    def start(self, run, processes, **flags):
        flags = dict(MODEL, data=self.text, out=run, steps=STEPS, save_every=3, keep=2) | flags
        if "save_async" in run.name:
            flags["save_async"] = True
        command = [minigpt, "train", *words(**flags)]
        if processes:
            command = mpirun(launcher, 2) + command
        else:
            command += ["--comm", "threads", "--ranks", "2"]
        return Run(command, self.path / "stderr.txt")

    def finish(self, run, processes, code=0, **flags):
        with self.start(run, processes, **flags) as job:
            got = job.finish()
            assert got == code, f"exit code {got}, expected {code}\n{job.stderr()}"
            return job.stderr()


def kill_somewhere(shop, run, processes):
    """Start or resume, and kill one rank at a random moment. Was it still running, and how long did
    the others live?"""
    moment = choice.choice(["any", "starting", "saving", "saving"])
    with shop.start(run, processes, resume="auto") as job:
        def ended():
            return job.process.poll() is not None

        before = newest_step(run)
        if moment == "starting":
            time.sleep(choice.uniform(0, 0.6))
        elif moment == "saving":
            progress = choice.randrange(1, 40)
            wait_until(lambda: newest_step(run) > before + progress or ended())
        else:
            wait_until(lambda: newest_step(run) > before or ended())
            time.sleep(choice.uniform(0, 0.3))
        victim = choice.choice(job.ranks())
        if moment == "saving":
            wait_until(lambda: any(run.glob("step-*.tmp-*")) or ended())
        running = not ended()
        kill(victim)
        begun = time.monotonic()
        # If a rank is killed while it starts, mpirun itself may never end.
        mpirun_alone = [job.process.pid] if processes and moment == "starting" else []
        gone = wait_until(lambda: job.processes() in ([], mpirun_alone), 10)
        assert gone, f"ranks outlived one that was killed, {moment}: {job.processes()}"
        return running, moment, time.monotonic() - begun


def killed_and_resumed(shop):
    """Runs of processes and of threads in turn, which save in the background or not, each killed a few times on its
    way."""
    done, hit, in_saving, runs, slowest = 0, 0, 0, 0, 0
    while done < kills:
        processes = launcher and runs % 2 == 0
        reference = shop.path / ("processes" if processes else "threads")
        run = shop.path / f"run{runs}{'-save_async' if runs // 2 % 2 == 0 else ''}"
        runs += 1
        for _ in range(min(7, kills - done)):
            if newest_step(run) == STEPS:
                break
            running, moment, took = kill_somewhere(shop, run, processes)
            unfinished = len(list(run.glob("step-*.tmp-*")))
            done, hit, in_saving = done + 1, hit + running, in_saving + unfinished
            slowest = max(slowest, took)
            print(f"  {run.name} {'processes' if processes else 'threads'}, {moment}: "
                  f"checkpoint {newest_step(run)}, unfinished {unfinished}", flush=True)
        shop.finish(run, processes, resume="auto")
        assert_same_run(run, reference, STEPS)
        assert_no_leftovers(run)
    print(f"{hit} of {done} kills met a living run, {in_saving} a checkpoint in the making; all ranks were gone "
          f"after at most {slowest:.1f} s; {runs} runs ended bitwise as they should")
    assert hit >= done * 2 // 3, "most kills came too late to mean anything"


def stopped_by_signal(shop):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup the programs would ignore it
    cases = [(False, number, 0) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)]
    cases += [(False, signal.SIGTERM, 1)]
    if launcher:
        cases += [(True, signal.SIGUSR1, 0), (True, signal.SIGUSR1, 1)]
    for processes, number, save_every in cases:
        saving = "-save_async" if save_every else ""  # then a save is always under way
        run = shop.path / f"stopped{number}{processes}{saving}"
        with shop.start(run, processes, save_every=save_every) as job:
            assert wait_until(lambda: (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").read_text().count("\n") > 3)
            kill(job.process.pid, number)
            code = job.finish(20)
            assert code == 75, f"{number!r}: exit code {code}, expected 75\n{job.stderr()}"
        step = newest_step(run)
        assert 0 < step < STEPS and len(metrics(run)) == step, f"stopped after {step}: {len(metrics(run))}"
        # The checkpoint comes first: nothing was validated at the step where it stopped.
        assert "val_loss" not in metrics(run)[step - 1]
        shop.finish(run, processes, resume="auto", save_every=0)
        made_up = "val_loss" in metrics(run)[step - 1]  # stopped in a validation that was due
        assert_same_run(run, shop.path / ("processes" if processes else "threads"), STEPS,
                        not_validated=0 if made_up else step)
        assert_no_leftovers(run)
        print(f"{signal.Signals(number).name}{' to mpirun' if processes else ''}{saving}: stopped after step {step}")


def damaged(shop):
    good = shop.path / "good"
    shop.finish(good, False, steps=12, keep=3)
    length = (good / "step-12/rank0.safetensors").stat().st_size

    def flip(path, at):
        data = bytearray(path.read_bytes())
        data[at] ^= 16
        path.write_bytes(data)

    cases = {
        "a flipped bit in a tensor": (lambda d: flip(d / "rank0.safetensors", length - 40),
                                      ["rank0.safetensors", "tensor ", "checksum differs"]),
        "a cut file": (lambda d: os.truncate(d / "rank0.safetensors", length // 2), ["rank0.safetensors"]),
        "a missing file": (lambda d: (d / "rank0.safetensors").unlink(), ["rank0.safetensors"]),
        "a flipped bit in the manifest": (lambda d: flip(d / "manifest.json", 300), ["manifest.json"]),
        "a missing manifest": (lambda d: (d / "manifest.json").unlink(), ["manifest.json"]),
    }
    for number, (name, (damage, expected)) in enumerate(cases.items()):
        run = shop.path / f"damaged{number}"
        shutil.copytree(good, run)
        damage(run / "step-12")
        before = files_of(run)
        processes = bool(launcher) and number == 0
        error = shop.finish(run, processes, code=65, steps=12, keep=3, resume="auto")
        for word in ["triax: error 65: ", f"{run}/step-12", "Nothing was loaded", "step-9", *expected]:
            assert word in error, f"{name}: no `{word}` in:\n{error}"
        assert files_of(run) == before, f"{name}: files changed"
        shop.finish(run, False, steps=12, keep=3, resume="last-good")
        assert_same_run(run, good, 12)
        print(f"{name}: refused, and resumed from the one before")


with tempfile.TemporaryDirectory(prefix="triax-kill-") as path:
    print(f"seed {seed}, {kills} kills")
    shop = Workshop(path)
    begun = time.monotonic()
    shop.finish(shop.path / "threads", False)
    if launcher:
        shop.finish(shop.path / "processes", True)
    print(f"references: {time.monotonic() - begun:.1f} s", flush=True)
    for test in (damaged, stopped_by_signal, killed_and_resumed):
        if os.environ.get("TRIAX_ONLY", test.__name__) != test.__name__:
            continue
        begun = time.monotonic()
        test(shop)
        print(f"{test.__name__}: {time.monotonic() - begun:.1f} s", flush=True)
