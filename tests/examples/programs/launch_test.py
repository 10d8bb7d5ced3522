"""launch_test.py MINIGPT MPIRUN TEST_MPI: eight ranks under scripts/launch.sh, one of which fails.
However it fails, the job is over three seconds later, with the right code, one report that stands
last, and no process left.

The time runs from the fault; where nobody can tell when that was, from the last step before it, or from the
start.
TRIAX_SECONDS: other than three. TRIAX_SANITIZED: without what sanitizers take for themselves, crashes
and limits on memory."""

import ctypes
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import uuid

from minigpt_program import kill, least_address_space, some_text, wait_until, words

minigpt, _, test_mpi = sys.argv[1:4]
LAUNCH = pathlib.Path(__file__).resolve().parents[3] / "scripts/launch.sh"
seconds = float(os.environ.get("TRIAX_SECONDS", "3"))
sanitized = "TRIAX_SANITIZED" in os.environ
RANKS = 8
MODEL = dict(layers=2, heads=2, width=16, context=8, micro_batch=2, global_batch=8, warmup=0,
             val_every=0, steps=100_000, dp=2, pp=2, tp=2, zero=1)
OF_MPIRUN = ["mpirun has", "mpirun noticed", "mpirun:", "Primary job", "MPI_ABORT", "ORTE", "PMIX", "-----",
             "launch.sh: line"]
failures = []

# on_rank RANK SHELL_CODE PROGRAM...: becomes the program, on one rank after running the code. What
# is about to happen is noted by the time of the file `fault`.
ON_RANK = """#!/bin/bash
rank=$1 code=$2
shift 2
[ "$OMPI_COMM_WORLD_RANK" != "$rank" ] || { : >"$FAULT"; eval "$code"; }
exec "$@"
"""


class Job:
    """launch.sh at work. All that comes from it has a mark in its environment, whatever session it is in."""

    def __init__(self, shop, command, ranks=RANKS, **environment):
        self.mark = f"TRIAX_TEST_JOB={uuid.uuid4()}"
        self.errors = shop / "stderr.txt"
        self.output = shop / "stdout.txt"
        environment = dict(os.environ, **environment)
        environment.pop("OMP_NUM_THREADS", None)
        environment.update([self.mark.split("=")])
        self.begun = time.time()
        with open(self.errors, "wb") as err, open(self.output, "wb") as out:
            self.process = subprocess.Popen(
                [LAUNCH, "-n", str(ranks), "--", *map(str, command)], stdin=subprocess.DEVNULL, stdout=out,
                stderr=err, env=environment, start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pid in self.processes():
            kill(pid)
        self.process.wait()

    def processes(self, name=None):
        """By process id, in the order of their start."""
        found = []
        for entry in sorted(int(e.name) for e in pathlib.Path("/proc").iterdir() if e.name.isdigit()):
            try:
                marked = self.mark.encode() in pathlib.Path(f"/proc/{entry}/environ").read_bytes()
                if marked and (name is None or pathlib.Path(f"/proc/{entry}/comm").read_text().strip() == name):
                    found.append(entry)
            except OSError:
                pass
        return found

    def rank(self, number):
        return next(pid for pid in self.processes("minigpt")
                    if f"OMPI_COMM_WORLD_RANK={number}\0" in pathlib.Path(f"/proc/{pid}/environ").read_text())

    def ended(self):
        return self.process.poll() is not None

    def problems(self, code, parts):
        """After the end."""
        error = self.errors.read_text(errors="replace")
        lines = error.splitlines()
        heads = [i for i, line in enumerate(lines) if line.startswith("triax: error ")]
        if self.process.returncode != code:
            yield f"exit code {self.process.returncode}, expected {code}"
        if code not in (0, 75, -signal.SIGKILL):
            if len(heads) != 1:
                yield f"{len(heads)} reports"
            elif not lines[heads[0]].startswith(f"triax: error {code}: "):
                yield "another code in the report"
            elif len(lines) - heads[0] > 12 or any(line[:2] != "  " for line in lines[heads[0] + 1:]):
                yield "the report is too long, or not the last"
        elif lines and code != -signal.SIGKILL:  # whoever kills launch.sh hears mpirun's libraries
            yield "something on stderr"
        yield from (f"no `{part}` in the report" for part in parts if str(part) not in error)
        yield from (f"`{part}` on stderr" for part in OF_MPIRUN if part in error)


class Workshop:
    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.count = 0
        self.run = self / "none"
        self.text = self / "text.txt"
        self.text.write_text(some_text())
        (self / "latin1.txt").write_bytes(b"caf\xe9 au lait " * 50)
        self.on_rank = self / "on_rank"
        self.on_rank.write_text(ON_RANK)
        self.on_rank.chmod(0o755)
        self.fault = self / "fault"

    def __truediv__(self, name):
        return self.path / name

    def train(self, **flags):
        self.count += 1
        self.run = self / f"run{self.count}"
        return [minigpt, "train", *words(**(MODEL | dict(data=self.text, out=self.run) | flags))]

    def started(self):
        metrics = self.run / "metrics.jsonl"
        return metrics.exists() and metrics.stat().st_size > 0

    def saved(self):
        return any(self.run.glob("step-*/manifest.json"))


def expect(shop, name, code, *parts, on=None, act=None, after=Workshop.started, command=None, waits=0.0,
           env={}, **flags):
    """Starts eight ranks; `on` = (rank, shell code) for one of them before it becomes the program, `act`
    is done to the job once `after`. `waits`: a time limit that has to run out first."""
    command = command or shop.train(**flags)
    if on:
        command = [shop.on_rank, *on, *command]
    shop.fault.unlink(missing_ok=True)
    problems = []
    with Job(shop, command, FAULT=str(shop.fault), **env) as job:
        since = None
        if act:
            if not wait_until(lambda: after(shop) or job.ended(), 30) or job.ended():
                problems.append("did not come to the fault")
            since = time.time()
            act(job)
        gone = wait_until(lambda: job.ended() and not job.processes(), 20 + waits)
        end = time.time()
        if not gone:
            problems.append(f"still there: {job.processes()}")
            for pid in job.processes():
                kill(pid)
            job.process.wait()
        since = since or max([job.begun] + [path.stat().st_mtime for path in (shop.fault, shop.run / "metrics.jsonl")
                                            if path.is_file()])
        took = end - since - waits
        if took > seconds:
            problems.append(f"took {took:.1f} s")
        problems += job.problems(code, parts)
    print(f"{'FAILED' if problems else 'ok'}  {name} ({took:.2f} s)", flush=True)
    if problems:
        failures.append(name)
        print("   ", "; ".join(problems), "\n" + job.errors.read_text(errors="replace"), flush=True)


def before_mpi(shop):
    expect(shop, "a rank fails before it is the program", 3, "exit code 3", on=(5, "exit 3"))
    expect(shop, "a rank is killed before it is the program", 137, "signal 9", on=(5, "kill -9 $$"))
    expect(shop, "a rank never becomes the program", 72, on=(6, "exit 0"), waits=2,
           env=dict(TRIAX_START_TIMEOUT="2"))
    if not sanitized:
        failed, least = len(failures), least_address_space(minigpt)
        for more in 40_000, 55_000, 70_000, 80_000, 90_000:  # under some limits Open MPI itself crashes
            del failures[failed:]
            expect(shop, "no memory to start MPI in", 72, "start of ", on=(3, f"ulimit -v {least + more}"), waits=2,
                   env=dict(TRIAX_START_TIMEOUT="2"))
            if len(failures) == failed:
                break


def at_the_start(shop):
    def other_flag(rank, flag):
        return rank, f'set -- "$@" {flag}'

    expect(shop, "a bad flag on one rank", 64, "--widht", on=other_flag(7, "--widht 3"))
    expect(shop, "no such mesh on one rank", 78, "dp 3", on=other_flag(1, "--dp 3"))
    expect(shop, "no text on one rank", 66, "nowhere", on=other_flag(4, f"--data {shop / 'nowhere'}"))
    expect(shop, "an unreadable text on one rank", 65, "UTF-8", on=other_flag(6, f"--data {shop / 'latin1.txt'}"))
    expect(shop, "another learning rate on one rank", 78, "rank 0: lr = 0.001", "rank 5: lr = 0.002",
           on=other_flag(5, "--lr 0.002"))
    expect(shop, "a bad flag on all ranks", 64, "--widht", widht=3)
    expect(shop, "a run directory where nobody can write", 73, "/proc/triax", out="/proc/triax")


def signals(shop):
    def send(number, rank):
        return lambda job: kill(job.rank(rank), number)

    expect(shop, "a rank is killed", 137, "rank 3 on ", "signal 9 (KILL)", act=send(signal.SIGKILL, 3))
    expect(shop, "rank 0 is killed", 137, "rank 0 on ", act=send(signal.SIGKILL, 0))
    if not sanitized:
        expect(shop, "a rank crashes", 139, "rank 6 on ", "signal 11 (SEGV)", "crashed",
               act=send(signal.SIGSEGV, 6))
    expect(shop, "a rank hangs", 72, "waiting for", act=send(signal.SIGSTOP, 2), waits=1,
           env=dict(TRIAX_TIMEOUT="1"))
    expect(shop, "a rank is killed while all save", 137, "rank 5 on ", act=send(signal.SIGKILL, 5),
           after=lambda s: any(s.run.glob("step-*.tmp-*")), save_every=1)
    expect(shop, "mpirun is killed", 137, "mpirun was ended by signal 9",
           act=lambda job: kill(job.processes("mpirun")[0]))


def files(shop):
    # The limit is in KiB.
    expect(shop, "a checkpoint too large for one rank", 73, "rank5.safetensors", "File too large",
           on=(5, "ulimit -f 4"), save_every=2, width=32)
    if left := list(shop.run.glob("step-*")):
        failures.append(f"a checkpoint that failed left {left}")
    expect(shop, "metrics onto a full disk", 73, "/dev/full", "on rank 0 of 8", metrics="/dev/full")

    def replace_by_file(_):
        """At once: there is always something of that name. And not while old checkpoints go."""
        time.sleep(0.05)
        (shop / "file").write_text("in the way")
        at_fdcwd, exchange = -100, 2  # renameat2(2)
        names = (os.fsencode(shop / "file"), os.fsencode(shop.run))
        if ctypes.CDLL(None).renameat2(at_fdcwd, names[0], at_fdcwd, names[1], exchange) != 0:
            raise OSError("renameat2")

    expect(shop, "a file where the run directory was", 73, "Not a directory", " of 8", act=replace_by_file,
           after=Workshop.saved, save_every=200)


def steps(shop):
    expect(shop, "a loss that is no number", 77, "no weight was changed", lr=1e30, min_lr=0, clip=0)


def collectives(shop):
    def case(name, mode, code, *parts):
        expect(shop, name, code, *parts, command=[test_mpi, mode])

    case("different collectives", "mismatch", 76, "ranks disagree", "rank 1: all_gather")
    case("an error while all wait", "failing_rank", 65, "the error of rank 1")
    if not sanitized:
        case("a rank gets no more memory", "no_more_memory", 71, "memory")
    case("an error on every rank", "common_error", 78, "the same on every rank", "  with a second line")
    case("an error with transfers in flight", "unwinding", 74, "while in flight")


def stops(shop):
    def send(*numbers):
        def act(job):
            for number in numbers:
                kill(job.process.pid, number)
                time.sleep(0.2)
        return act

    for number in signal.SIGTERM, signal.SIGINT, signal.SIGUSR1:
        expect(shop, f"{number.name} stops the run", 75, act=send(number))
        if not shop.saved():
            failures.append(f"no checkpoint after {number.name}")
    expect(shop, "a second signal ends a run that hangs", 143, "second signal",
           act=lambda job: (kill(job.rank(1), signal.SIGSTOP), send(signal.SIGTERM, signal.SIGTERM)(job)))
    expect(shop, "launch.sh itself is killed", -signal.SIGKILL, act=send(signal.SIGKILL))


with tempfile.TemporaryDirectory(prefix="triax-launch-") as path:
    workshop = Workshop(path)
    for group in (before_mpi, at_the_start, signals, files, steps, collectives, stops):
        group(workshop)
if failures:
    sys.exit(f"{len(failures)} failed: " + "; ".join(failures))
