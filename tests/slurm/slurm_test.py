"""slurm_test.py MINIGPT MPIRUN: training under a real Slurm, started for this test, and examples/slurm/.

Every run ends bitwise like one that mpirun started and nobody disturbed. Takes about two minutes, most
of which is Slurm's: time limits are whole minutes. So it is only run if TRIAX_SLURM_TEST=1 asks for it; exit code 77
else, and where Slurm is not installed."""

import os
import pathlib
import signal
import sys
import tempfile
import time

import cluster  # which finds the next one
from minigpt_program import (MODEL, assert_no_leftovers, assert_same_run, kill, metrics, mpirun, newest_step, ranks_of,
                             some_text, wait_until, words)

minigpt, launcher = sys.argv[1:3]
REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
STEPS = 1000
# --signal=USR1@20 within a minute: it comes 10 to 40 s after the start, as Slurm looks every 30 s.
ONE_MINUTE = ["--time=1", "--ntasks-per-node=4", "--nodes=1"]


class Test:
    def __init__(self, slurm):
        self.slurm = slurm
        self.text = slurm.folder / "text.txt"
        self.text.write_text(some_text())

    def path(self, name):
        return self.slurm.folder / name

    def flags(self, run, **flags):
        return words(**(MODEL | dict(data=self.text, out=run, steps=STEPS, save_every=100, keep=2, val_every=0,
                                     layers=2, dp=2, pp=2) | flags))

    def train(self, run, **flags):
        return [minigpt, "train", *self.flags(run, **flags)]

    def srun(self, run, *words, **flags):
        return self.slurm.run("srun", *words, *self.train(self.path(run), **flags))

    def submit(self, script, run, *options, **flags):
        done = self.slurm.run("sbatch", "--parsable", "--chdir", REPOSITORY, "--output", self.path(f"{run}.log"),
                              *options, REPOSITORY / "examples/slurm" / script,
                              *self.flags(self.path(run), **flags), PROGRAM=minigpt)
        assert done.returncode == 0, done.stderr
        return Job(self.slurm, done.stdout.strip(), self.path(run))

    def as_mpirun_does(self, run, steps=STEPS):
        quiet = self.path(f"quiet{steps}")
        if not quiet.exists():
            done = self.slurm.run(*mpirun(launcher, 4), *self.train(quiet, steps=steps))
            assert done.returncode == 0, done.stderr
        assert_same_run(run, quiet, steps)
        assert_no_leftovers(run)


class Job:
    def __init__(self, slurm, number, run):
        self.slurm, self.number, self.run = slurm, number, run

    def shown(self, key):
        fields = self.slurm.run("scontrol", "show", "job", self.number).stdout.split()
        return next(field.split("=", 1)[1] for field in fields if field.startswith(key + "="))

    def log(self):
        path = pathlib.Path(f"{self.run}.log")
        return path.read_text(errors="replace") if path.exists() else ""

    def wait(self, condition, what, seconds=120):
        assert wait_until(lambda: time.sleep(0.1) or condition(), seconds), (
            f"job {self.number}: waited {seconds} s for {what}; {self.shown('JobState')}\n"
            f"{self.log()}\n{self.slurm.logs()}")

    def wait_for_steps(self, steps=20):
        path = self.run / "metrics.jsonl"
        self.wait(lambda: path.exists() and path.read_text().count("\n") >= steps, f"step {steps}")


def srun_starts_the_ranks(test):
    cases = {"one_node": ["--nodes=1"], "two_nodes": ["--nodes=2"],
             "through_launch": ["--nodes=1", REPOSITORY / "scripts/launch.sh", "--"]}
    for run, words in cases.items():
        done = test.srun(run, "--mpi=pmix", "--ntasks=4", *words, steps=60)
        assert done.returncode == 0, done.stderr
        test.as_mpirun_does(test.path(run), steps=60)


def what_cannot_work_is_refused(test):
    done = test.srun("none", "--mpi=pmix", "--ntasks=3")
    assert done.returncode == 78 and "does not equal the 3 ranks started" in done.stderr, done.stderr
    for flags in {}, dict(comm="threads", ranks=4):
        done = test.srun("none", "--mpi=none", "--ntasks=4", **flags)
        assert done.returncode == 78 and done.stderr.count("triax: error 78: ") == 1, done.stderr
        assert "SLURM_STEP_NUM_TASKS" in done.stderr, done.stderr
    assert not test.path("none").exists()
    done = test.srun("alone", "--mpi=none", "--ntasks=1", comm="threads", ranks=4)
    assert done.returncode == 0, done.stderr


def on_node(pid, number):
    return f"SLURMD_NODENAME=n{number}".encode() in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def a_killed_rank_ends_the_step(test):
    for nodes in 1, 2:
        job = test.submit("several_nodes.sh", f"killed{nodes}", f"--nodes={nodes}", f"--ntasks-per-node={4 // nodes}",
                          steps=100000)
        job.wait_for_steps()
        since = time.monotonic()
        kill(next(pid for pid in ranks_of(job.run) if on_node(pid, nodes)))
        job.wait(lambda: job.shown("JobState") == "FAILED" and not ranks_of(job.run), "its end",
                 cluster.SECONDS_TO_END + 10)
        print(f"  on {nodes} nodes: exit code {job.shown('ExitCode')} after {time.monotonic() - since:.1f} s")
        assert job.shown("Restarts") == "0"


def a_cancelled_job_has_saved(test):
    job = test.submit("several_nodes.sh", "cancelled", "--nodes=2", "--ntasks-per-node=2", steps=100000)
    job.wait_for_steps()
    test.slurm.run("scancel", job.number)
    job.wait(lambda: job.shown("JobState") == "CANCELLED" and not ranks_of(job.run), "its end",
             cluster.SECONDS_TO_END + 5)
    assert newest_step(job.run) == len(metrics(job.run)) > 0, job.log()
    time.sleep(5)
    assert job.shown("JobState") == "CANCELLED" and job.shown("Restarts") == "0", "it was put back"


def asked_to_save(pid):
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    pending = int(status.split("ShdPnd:")[1].split()[0], 16)
    return bool(pending >> (signal.SIGUSR1 - 1) & 1)


def suspend(job):
    """Until Slurm's signal comes: else the run would have to last as long as that takes."""
    for pid in ranks_of(job.run):
        kill(pid, signal.SIGSTOP)


def a_time_limit_puts_the_job_back(test):
    """Both scripts. Ranks of one_node.sh are started again in place when one is killed."""
    launch = test.submit("one_node.sh", "limit_launch", *ONE_MINUTE, "--signal=B:USR1@20")
    launch.wait(lambda: newest_step(launch.run) >= 100, "a checkpoint")
    kill(ranks_of(launch.run)[1])
    launch.wait(lambda: "launch: restart 1 of 3 in 1 s: --resume auto, newest checkpoint" in launch.log(), "a restart")
    launch.wait(lambda: newest_step(launch.run) >= 300, "further checkpoints")
    suspend(launch)
    srun = test.submit("several_nodes.sh", "limit_srun", *ONE_MINUTE, "--signal=USR1@20")
    srun.wait_for_steps()
    suspend(srun)
    for job in launch, srun:
        job.wait(lambda: all(asked_to_save(pid) for pid in ranks_of(job.run)), "SIGUSR1")
        for pid in ranks_of(job.run):
            kill(pid, signal.SIGCONT)
    for job in launch, srun:
        job.wait(lambda: job.shown("JobState") in ("COMPLETED", "FAILED", "TIMEOUT"), "its end", 300)
        assert job.shown("JobState") == "COMPLETED", job.log()
        starts = int(job.shown("Restarts"))  # more than one if this machine is very busy
        assert starts == job.log().count("stopped by a signal after step") >= 1, job.log()
        test.as_mpirun_does(job.run)


def main(folder):
    with cluster.Cluster(folder) as slurm:
        listed = slurm.run("srun", "--mpi=list")
        if "pmix" not in (listed.stdout + listed.stderr).split():
            print("skipped: srun --mpi=list has no pmix")
            return 77
        test = Test(slurm)
        for part in (srun_starts_the_ranks, what_cannot_work_is_refused, a_killed_rank_ends_the_step,
                     a_cancelled_job_has_saved, a_time_limit_puts_the_job_back):
            begun = time.monotonic()
            part(test)
            print(f"{part.__name__}: {time.monotonic() - begun:.1f} s", flush=True)
        leftover = [pid for run in slurm.folder.iterdir() for pid in ranks_of(run)]
        assert not leftover, leftover
    assert not slurm.processes(), "processes of the cluster are left"
    return 0


asked = os.environ.get("TRIAX_SLURM_TEST") == "1"
if reason := cluster.obstacle() if asked else "two minutes; TRIAX_SLURM_TEST=1 runs it":
    print(f"skipped: {reason}")
    sys.exit(77)
with tempfile.TemporaryDirectory(prefix="triax-slurm-") as path:
    sys.exit(main(path))
