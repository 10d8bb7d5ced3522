"""auto_test.py MINIGPT MPIRUN: `train --auto` chooses by the search of `plan`, keeps what is given, and trains as one rank does;
threads and processes; resumed runs; what it refuses."""

import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

from minigpt_program import RANKS_SHARING_CORES, metrics, mpirun, some_text, words

minigpt, launcher = sys.argv[1], sys.argv[2]
MODEL = dict(layers=2, heads=2, width=32, context=16, steps=4, warmup=0, val_every=0, val_fraction=0.01)


class Work:
    def __init__(self, path):
        self.path = pathlib.Path(path)
        (self.path / "text.txt").write_text(some_text(4000))

    def flags(self, **flags):
        return words(**{k: v for k, v in (MODEL | dict(data=self.path / "text.txt") | flags).items() if v is not None})

    def call(self, command, code=0):
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                              env=dict(RANKS_SHARING_CORES, COLUMNS="500"), cwd=self.path, timeout=120)
        assert done.returncode == code, f"{command}:\n{done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def train(self, code=0, ranks=2, launch=(), **flags):
        threads = {} if launch else dict(comm="threads", ranks=ranks)
        return self.call([*launch, minigpt, "train", "--auto", *self.flags(**threads, **flags)], code)


def check(text, *parts):
    for part in parts:
        assert part in text, f"`{part}` is missing:\n{text}"


def command_in(text):
    """The words after `train` of the command that repeats the choice."""
    line = re.search(r"^.*minigpt train (.*)$", text, re.M)
    assert line, text
    return shlex.split(line[1])


def value(command, flag):
    return command[command.index(flag) + 1]


def same_training(ours, expected, what):
    assert len(ours) == len(expected) == MODEL["steps"], what
    for a, b in zip(ours, expected):
        for key, relative in (("loss", 1e-6), ("grad_norm", 2e-6)):
            assert abs(a[key] - b[key]) <= relative * b[key], f"{what}: {key} {a[key]}, on one rank {b[key]}"


def trains_as_one_rank(work):
    one = work.path / "one"
    work.call([minigpt, "train", *work.flags(micro_batch=2, global_batch=8, out=one)])
    for ranks in (2, 4):
        out = work.path / f"ranks{ranks}"
        text = work.train(ranks=ranks, global_batch=8, hardware="cpu", out=out)
        check(text, "ways timed", "the model's FLOP alone take", "  best\n", "EQUAL: loss, norm", "finished after step 4")
        same_training(metrics(out), metrics(one), f"{ranks} ranks")
        chosen = command_in(text)
        assert "--auto" not in chosen and "--hardware" not in chosen, chosen
        assert value(chosen, "--global-batch") == "8", chosen
        again = work.path / f"again{ranks}"
        chosen[chosen.index("--out") + 1] = again
        work.call([minigpt, "train", *chosen])
        assert [r["loss"] for r in metrics(again)] == [r["loss"] for r in metrics(out)]
        second = work.train(ranks=ranks, global_batch=8, hardware="cpu", out=work.path / f"second{ranks}")
        assert [w for w in command_in(second) if "second" not in w] == [w for w in command_in(text) if str(out) != w]


def keeps_what_is_given(work):
    text = work.train(ranks=4, global_batch=8, hardware="cpu", out="given", tp=2, zero=0, schedule="gpipe", micro_batch=1)
    chosen = command_in(text)
    for flag, wanted in (("--tp", "2"), ("--zero", "0"), ("--micro-batch", "1")):
        assert value(chosen, flag) == wanted, chosen
    config = (work.path / "given/config.toml").read_text()
    check(config, '\ntp = 2\n', '\nzero = "0"\n', '\nschedule = "gpipe"\n', "\nmicro-batch = 1\n", "\nglobal-batch = 8\n")
    (work.path / "c.toml").write_text('micro-batch = 1\nrecompute = "block"\n')
    text = work.train(global_batch=16, hardware="cpu", out="file", config=work.path / "c.toml")
    check(text, "\nfixed by --config: micro-batch 1, recompute block\n", " a step if the search may change that\n")
    open_time, own = (float(re.search(pattern, text)[1]) for pattern in
                      (r"\n([\d.]+) ms a step if", r"\n +2 x 1 x 1 .*? ([\d.]+) ms .*  best\n"))
    assert open_time < own, text
    assert value(command_in(text), "--micro-batch") == "1"
    # The batch is that of training without a choice: micro-batch (12 by default) x replicas.
    text = work.train(hardware="cpu", out="batch")
    assert value(command_in(text), "--global-batch") == "24", text
    only = dict(pp=1, tp=1, cp=1, zero=0, recompute="off", micro_batch=1, global_batch=2)
    check(work.train(hardware="cpu", out="only", **only), "\n1 ways timed", "--dp 2 --pp 1 --tp 1 --zero 0")


def refuses(work):
    check(work.train(78, dp=3), "2 ranks with dp=3", "Change --ranks, or leave one of --dp")
    check(work.train(78, device_map="auto"), "auto with deepspeed or device-map", "Leave one out")
    check(work.train(ranks=4, hardware="cpu", bitwise="true", tp_slices=2, heads=4, steps=1, global_batch=8),
          "left out: ", "2 slices on tp=4", "finished after step 1")
    check(work.train(78, hardware="h900"), "h900", "a100, a100-40gb, b200, cpu")
    check(work.call([minigpt, "train", *work.flags(hardware="cpu")], 78), "hardware without auto", "Add --auto")
    check(work.train(hardware="cpu", out="large", width=512, context=256, steps=1, global_batch=2, micro_batch=1),
          "auto: not verified: 2 ranks with ", "finished after step 1")
    check(work.train(78, hardware="h100", width=100000), "nothing fits in", "Most of it is")


def measures_and_resumes(work):
    run = mpirun(launcher, 2) if launcher else ()
    flags = dict(out="kept", global_batch=8)
    text = work.train(launch=run, **flags)
    check(text, "auto: measured the hardware in ", ": 2 ranks, threads of each: 1", "EQUAL: loss, norm")
    assert text.count("ways timed") == 1, text  # rank 0 alone decides
    before = (work.path / "kept/config.toml").read_text()
    text = work.train(launch=run, resume="auto", **(flags | dict(global_batch=None, steps=6)))
    check(text, "auto: kept/step-4 is of 2 ranks: its choice stays", "resumed after step 4", "finished after step 6")
    assert "ways timed" not in text and "measured" not in text, text
    assert (work.path / "kept/config.toml").read_text().replace("steps = 6", "steps = 4") == before
    text = work.train(ranks=4, resume="auto", **(flags | dict(global_batch=None, steps=8, hardware="cpu")))
    check(text, "auto: kept/step-6 is of 2 ranks: a new choice for 4", "ways timed", "EQUAL", "resumed after step 6",
          "= 4 ranks", "finished after step 8")
    assert value(command_in(text), "--global-batch") == "8", text
    check(work.train(78, resume="auto"), "resume=auto without out")


with tempfile.TemporaryDirectory(prefix="triax-auto-") as name:
    for test in (trains_as_one_rank, keeps_what_is_given, refuses, measures_and_resumes):
        test(Work(name))
        print(test.__name__, flush=True)
