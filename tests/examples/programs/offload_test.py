"""offload_test.py MINIGPT MPIRUN: optimizer state and weights in files, as a user has them: a model trains
in memory that is too small for its optimizer state, or for its weights alone; a file that is cut ends the
run and no checkpoint; nothing stays behind. MPIRUN is not used."""

import contextlib
import os
import pathlib
import sys
import tempfile

from minigpt_program import (Run, Workshop, kill, least_address_space, limited, newest_step, records_of, wait_until,
                             words)

minigpt = sys.argv[1]
# Few tokens and a large vocabulary: nearly all bytes are weights, gradients and optimizer state.
MODEL = dict(layers=1, heads=1, width=16, context=8, micro_batch=1, warmup=0, val_fraction=0,
             comm="threads")


class Offloading(Workshop):
    def start(self, run, limit=0, writable=0, **flags):
        """`limit`: bytes of address space beside the libraries'. `writable`: bytes that it may write to in all."""
        flags = dict(MODEL, data=self.text, out=self.path / run) | flags
        command = [minigpt, "train", *words(**flags)]
        if limit or writable:
            space = f"-v {least_address_space(minigpt) + limit // 1024}" if limit else f"-d {writable // 1024}"
            command = limited(space, command)
        return Run(command, self.path / "stderr.txt")

    def ends(self, code, *parts, run, **flags):
        with self.start(run, **flags) as job:
            got, error = job.finish(), job.stderr()
        assert got == code, f"exit code {got}, expected {code}\n{error}"
        for part in parts:
            assert part in error, f"no `{part}` in\n{error}"
        left = list(self.files.iterdir())
        assert not left, f"left behind: {left}"

    def state_file(self, job):
        """Where /proc has the file of a running job, or None."""
        for fd in pathlib.Path(f"/proc/{job.process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # the job closes files while they are read
                if os.readlink(fd).startswith(f"{self.files}/"):
                    return fd
        return None


def trains_in_less_memory(shop):
    """50 million parameters in bf16: 101 MB of weights, 202 of gradients, and 606 of optimizer state, more
    than the limit."""
    if os.environ.get("TRIAX_SANITIZED"):
        return print("skipped  less memory: sanitizers need all of it", flush=True)
    limit = dict(limit=480 * 1000 * 1000, precision="bf16", layers=4, heads=16, width=1024, steps=1)
    shop.ends(71, "memory: no ", run="off", offload="off", **limit)
    shop.ends(0, run="small", offload="optimizer", offload_dir=shop.files, **limit)
    assert newest_step(shop.path / "small") == 1
    print("ok  trains in less memory", flush=True)


def trains_in_less_than_its_weights(shop):
    """50 million parameters in fp32: 200 MB of weights. A run that is resumed is the run in all memory."""
    if os.environ.get("TRIAX_SANITIZED"):
        return print("skipped  less than its weights: sanitizers need all memory", flush=True)
    model = dict(layers=24, heads=8, width=416, global_batch=2, min_lr=0.001)
    limit = dict(writable=155 * 1000 * 1000, zero=3)
    shop.ends(71, "memory: no ", run="off", offload="optimizer", offload_dir=shop.files, steps=1, **limit, **model)
    shop.ends(0, run="tiny", offload="params", offload_dir=shop.files, steps=1, **limit, **model)
    shop.ends(0, run="tiny", offload="params", offload_dir=shop.files, steps=2, resume="auto", **limit, **model)
    shop.ends(0, run="whole", zero=3, steps=2, **model)
    losses = [[(row["loss"], row["grad_norm"]) for row in records_of(shop.path / run) if "loss" in row]
              for run in ("tiny", "whole")]
    assert len(losses[0]) == 2 and losses[0] == losses[1], losses
    print("ok  trains in less than its weights", flush=True)


def survives_a_cut_file(shop):
    model = dict(vocab=300000, run="cut", steps=100000, save_every=2, ranks=2, zero=1)
    with shop.start(offload="optimizer", offload_dir=shop.files, **model) as job:
        assert wait_until(lambda: newest_step(shop.path / "cut") >= 2), job.stderr()
        os.truncate(shop.state_file(job), 0)
        got, error = job.finish(), job.stderr()
    assert got == 74 and "offload: " in error, f"exit code {got}, expected 74\n{error}"
    assert error.count("triax: error ") == 1, error
    last = newest_step(shop.path / "cut")
    model["steps"] = last + 1
    shop.ends(0, offload="off", resume="auto", **model)
    assert newest_step(shop.path / "cut") == last + 1
    print("ok  survives a cut file", flush=True)


def leaves_nothing_behind(shop):
    with shop.start("killed", offload="params", zero=3, offload_dir=shop.files, vocab=150000,
                    steps=100000) as job:
        assert wait_until(lambda: shop.state_file(job)), job.stderr()
        assert not list(shop.files.iterdir())
        kill(job.process.pid)
        job.process.wait()
    assert not list(shop.files.iterdir())
    print("ok  leaves nothing behind", flush=True)


with tempfile.TemporaryDirectory(prefix="triax-offload-test-") as path:
    workshop = Offloading(path)
    for group in (trains_in_less_memory, trains_in_less_than_its_weights, survives_a_cut_file,
                  leaves_nothing_behind):
        group(workshop)
