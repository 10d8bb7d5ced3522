"""elastic_test.py MINIGPT MPIRUN [RUNS [SEED]]: runs under scripts/launch.sh --elastic with --bitwise that lose one to
three ranks at random moments, on several meshes, end with the bits of a run that was left alone.

RUNS: 2 by default; from 10 on with a table of how long it took from each loss to the first new step.
Which codes, words and hosts: tests/scripts/launch_elastic_test.py. TRIAX_SECONDS: what one restart may take
here (3); tests wait for ten times as long."""

import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from minigpt_program import (RANKS_SHARING_CORES, Run, assert_no_leftovers, kill, newest_step, other_tensors, ranks_of,
                             some_text, wait_until, words)

minigpt = os.path.abspath(sys.argv[1])
runs, seed = [int(word) for word in sys.argv[3:]] + [2, 1][len(sys.argv) - 3:]
LAUNCH = pathlib.Path(__file__).resolve().parents[3] / "scripts/launch.sh"
seconds = float(os.environ.get("TRIAX_SECONDS", "3"))
STEPS = 160
MODEL = dict(layers=2, heads=2, width=32, context=16, dropout=0.1, bitwise=True, tp_slices=2, micro_batch=1,
             global_batch=12, warmup=5, val_every=0, steps=STEPS)
# Ranks, and the mesh of the plan.
MESHES = [(4, dict(dp=2, pp=2)), (4, dict(pp=2, tp=2, zero=0)), (4, dict(tp=2, zero=1)), (3, dict(zero=3)),
          (4, dict(zero=2)), (4, dict(pp=4, schedule="zb-h1")), (6, dict(pp=3, tp=1, zero=1, save_async=True)),
          (4, dict(pp=2, schedule="interleaved", save_async=True))]


# Stands in for ssh: a host is a directory, and processes of this machine that have it in their environment.
# Two daemons of Open MPI for one job on one machine share a session directory, and sometimes crash: each host
# gets its own.
AGENT = """#!/bin/bash
[ ! -e "{folder}/$1-is-down" ] || exit 255
export HOST_DIRECTORY="{folder}/$1" OMPI_MCA_orte_tmpdir_base="{folder}/$1"
mkdir -p "$HOST_DIRECTORY"
exec 9>&- bash -c "${*:2}"
"""


def processes_on(host):
    """Ids of the processes that AGENT started for this host's directory."""
    mark, found = f"HOST_DIRECTORY={host}".encode(), []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            pass
    return found


class Job:
    """launch.sh --elastic at work in the directory `run`, which exists as soon as anything is saved."""

    def __init__(self, shop, name, ranks, *options, elastic=True, launcher=(), **flags):
        self.run, self.ranks, self.restarts, self.losses = shop.path / name, ranks, 0, []
        flags = dict(MODEL, data=shop.text, out=self.run, save_every=10, keep=2) | flags
        command = [LAUNCH, "-n", ranks, "--restarts", "20", *["--elastic"] * elastic, *options, "--", minigpt, "train"]
        command += words(**flags)
        self.job = Run(list(map(str, command)), shop.path / f"{name.replace('/', '-')}.stderr", **dict(launcher))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.job.__exit__()
        for pid in ranks_of(self.run):
            kill(pid)

    def fail(self, what):
        raise AssertionError(f"{self.run.name}: {what}; step {self.step()}, newest checkpoint {newest_step(self.run)}, "
                             f"exit code {self.job.process.poll()}\n{self.job.stderr()}")

    def wait(self, condition, what):
        if not wait_until(lambda: condition() or self.ended(), 10 * seconds) or not condition():
            self.fail(f"waited in vain for {what}")

    def ended(self):
        return self.job.process.poll() is not None

    def step(self):
        """Of the last line of the metrics."""
        return self.steps_and_time()[0]

    def steps_and_time(self):
        """Lines of the metrics, and when the last one came."""
        try:
            with open(self.run / "metrics.jsonl", "rb") as file:
                return file.read().count(b"\n"), os.fstat(file.fileno()).st_mtime
        except OSError:
            return 0, 0

    def train_until(self, step):
        self.wait(lambda: self.step() >= step, f"step {step}")

    def pids(self):
        """Of the ranks, not of the process that is asked for the mesh."""
        def is_rank(pid):
            try:
                return b"\0OMPI_COMM_WORLD_RANK=" in pathlib.Path(f"/proc/{pid}/environ").read_bytes()
            except OSError:
                return False
        return [pid for pid in ranks_of(self.run) if is_rank(pid)]

    def said(self, word):
        return [line for line in self.job.stderr().splitlines() if line.startswith(f"launch: {word}")]

    def lose(self, choice, number=signal.SIGKILL):
        """A rank, as soon as there is one."""
        self.wait(self.pids, "a rank")
        if pids := self.pids():  # else it has just ended
            kill(choice.choice(pids), number)
        self.losses.append(time.time())
        self.restarts += 1
        self.wait(lambda: len(self.said("restart")) >= self.restarts, f"restart {self.restarts}")

    def has_ranks(self):
        """As soon as it has; a run that ends well before, after its last restart, needs none."""
        self.wait(lambda: self.pids() or self.ended() and self.job.process.poll() == 0, "a rank, or the end")
        return not self.ended()

    def resumed_from(self):
        """The step whose checkpoint the last restart loaded."""
        return int(self.said("re")[-1].partition("checkpoint step-")[2].partition(";")[0] or 0)

    def time_to_first_step(self):
        """From the last loss until the metrics have a new step."""
        said, before = time.time(), self.resumed_from()

        def trains_again():
            steps, now = self.steps_and_time()
            return steps > before and now > said

        self.wait(trains_again, "the first new step")
        return self.steps_and_time()[1] - self.losses[-1]

    def finish(self, code=0):
        got = self.job.finish(40 * seconds)
        if got != code:
            self.fail(f"expected exit code {code}")
        if left := ranks_of(self.run) + self.job.processes():
            self.fail(f"processes are left: {left}")


class Shop:
    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.text = self.path / "text.txt"
        self.text.write_text(some_text())
        command = [minigpt, "train", *words(**MODEL, data=self.text, out=self.path / "quiet")]
        subprocess.run(command, check=True, capture_output=True, timeout=60 * seconds, env=RANKS_SHARING_CORES)

    def check(self, run):
        """Bits of all losses and of the last checkpoint."""
        def losses(name):
            records = map(json.loads, (self.path / name / "metrics.jsonl").read_text().splitlines())
            return [(r["step"], r["loss"], r["grad_norm"], r["lr"]) for r in records]

        assert losses(run) == losses("quiet"), f"{run}: other metrics"
        differs = other_tensors(self.path, f"quiet/step-{STEPS}", f"{run}/step-{STEPS}")
        assert not differs, f"{run}: the last checkpoints differ\n{differs}"
        assert_no_leftovers(self.path / run)


def random_kills(shop, number, choice):
    """The times to the first new step."""
    ranks, mesh = MESHES[number % len(MESHES)]
    took = []
    with Job(shop, f"run{number}", ranks, **mesh) as job:
        for _ in range(choice.randint(1, min(3, ranks - 1))):
            moment = choice.choice(["training", "training", "starting"])
            if moment == "training":
                job.train_until(choice.randint(1, STEPS - 60))
            time.sleep(choice.uniform(0, 0.7 if moment == "starting" else 0.02))
            if not job.has_ranks():
                break
            job.lose(choice)
            if choice.random() < 0.7 and job.resumed_from() < STEPS:
                took.append(job.time_to_first_step())
        assert job.restarts, f"{job.run.name}: it ended before anything was lost"
        if choice.random() < 0.3:  # all ranks again
            job.job.process.send_signal(signal.SIGUSR2)
            job.wait(lambda: job.said("re-mesh") or job.ended(), "a re-mesh")
        job.finish()
        shop.check(job.run.name)
        on = [line.partition("; ")[2] for line in job.said("re")]
        print(f"{mesh} on {ranks}: {job.restarts} lost, then {', '.join(on)}; first step after "
              f"{', '.join(f'{t:.1f} s' for t in took)}: equal bits", flush=True)
    return took


def a_stopped_rank(shop):
    with Job(shop, "stopped", 3, launcher=dict(TRIAX_TIMEOUT=str(seconds)), dp=3) as job:
        job.train_until(30)
        job.lose(random.Random(seed), signal.SIGSTOP)
        job.finish()
        assert "2 ranks" in job.said("restart")[0], job.said("restart")
    shop.check("stopped")
    print("a stopped rank: equal bits", flush=True)


def restarts_alone(shop):
    """Without --elastic: two ranks are lost, one of them young, and the job is asked to stop; then it goes on."""
    choice, mesh = random.Random(seed), dict(elastic=False, dp=2, pp=2)
    with Job(shop, "restarted", 4, profile="2-3", **mesh) as job:
        job.train_until(20)
        job.lose(choice)
        first = job.resumed_from()
        job.lose(choice)
        job.wait(lambda: newest_step(job.run) > first + 10, "a checkpoint")
        job.job.process.send_signal(signal.SIGTERM)
        job.finish(75)
        said = job.said("restart")
        assert said[0] == f"launch: restart 1 of 20 in 1 s: --resume auto, newest checkpoint step-{first}", said
        assert len(said) == 2 and said[1].startswith("launch: restart 2 of 20 in 2 s: "), said
        assert job.job.stderr().count("triax: error 137: launch: ") == 2, job.job.stderr()
    with Job(shop, "restarted", 4, resume="auto", **mesh) as job:
        job.finish()
    shop.check("restarted")
    print("restarts alone, and a stop: equal bits", flush=True)


def shrink_and_grow(shop):
    with Job(shop, "grown", "2:4", dp=2, pp=2) as job:
        job.train_until(20)
        job.lose(random.Random(seed))
        job.train_until(60)
        job.job.process.send_signal(signal.SIGUSR2)
        job.wait(lambda: job.said("re-mesh"), "a re-mesh")
        job.finish()
        said = job.said("re")
        assert said[0].endswith("; 2 ranks: --dp 1 --pp 2 --tp 1"), said
        assert said[1].endswith("; 4 ranks: --dp 2 --pp 2 --tp 1"), said
    shop.check("grown")
    print("fewer ranks, and all again after SIGUSR2: equal bits", flush=True)


def a_host_is_lost_and_comes_back(shop):
    hosts, agent, down = shop.path / "hosts", shop.path / "agent", shop.path / "beta-is-down"
    hosts.write_text("alpha slots=2\nbeta slots=2\n")
    agent.write_text(AGENT.replace("{folder}", str(shop.path)))
    agent.chmod(0o755)
    # Hosts that are one machine must not meet in its memory.
    apart = dict(OMPI_MCA_plm_rsh_agent=str(agent), OMPI_MCA_btl="self,tcp", TRIAX_WINDOW="off")
    with Job(shop, "lost-host", "2:4", "--hosts", hosts, launcher=apart, pp=2) as job:
        job.train_until(20)
        down.touch()
        for pid in processes_on(shop.path / "beta"):
            kill(pid)
        job.wait(lambda: job.said("restart"), "a restart")
        job.train_until(60)
        down.unlink()
        job.job.process.send_signal(signal.SIGUSR2)
        job.wait(lambda: job.said("re-mesh"), "a re-mesh")
        job.finish()
        left = lambda: processes_on(shop.path / "alpha") + processes_on(shop.path / "beta")
        assert wait_until(lambda: not left()), f"processes are left: {left()}"
        said = job.said("")
        assert said[0] == "launch: beta does not answer", said
        assert said[1].endswith("; 2 ranks: --dp 1 --pp 2 --tp 1"), said
        assert said[2].endswith("; 4 ranks: --dp 2 --pp 2 --tp 1"), said
        assert "host beta was lost" in job.job.stderr(), job.job.stderr()
    shop.check("lost-host")
    print("a host lost, and back after SIGUSR2: equal bits", flush=True)


def a_full_disk(shop):
    """Ends the job, which goes on when there is room again."""
    disk = shop.path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "triax-test", disk]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        return print("a full disk: skipped, this user may not mount one", flush=True)
    try:
        with Job(shop, "disk/run", 4, dp=2, pp=2) as job:
            job.train_until(20)
            job.lose(random.Random(seed))
            job.train_until(50)
            subprocess.run(["dd", "if=/dev/zero", f"of={disk / 'filler'}", "bs=4k"], capture_output=True)
            job.finish(73)
        (disk / "filler").unlink()
        with Job(shop, "disk/run", 3, dp=1, pp=2, resume="auto") as job:
            job.finish()
        shop.check("disk/run")
    finally:
        subprocess.run(["umount", disk], check=True)
    print("a full disk, and room again: equal bits", flush=True)


with tempfile.TemporaryDirectory(prefix="triax-elastic-") as path:
    shop, choice = Shop(path), random.Random(seed)
    restarts_alone(shop)
    a_stopped_rank(shop)
    shrink_and_grow(shop)
    a_host_is_lost_and_comes_back(shop)
    a_full_disk(shop)
    times = [t for number in range(runs) for t in random_kills(shop, number, choice)]
if times:
    print(f"{runs} runs; from a loss to the first new step: median {statistics.median(times):.2f} s, "
          f"at most {max(times):.2f} s ({len(times)} losses)")
