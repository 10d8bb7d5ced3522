"""restart_test.py MINIGPT MPIRUN: scripts/launch.sh --restarts on four ranks, of which one is killed, one
more at the start that follows, and which are asked to stop then. In the end the run is bitwise one that
was left alone.

Which codes and which words: tests/scripts/launch_restarts_test.py. TRIAX_SECONDS: three on this machine."""

import os
import pathlib
import signal
import sys
import tempfile

from minigpt_program import (MODEL, Run, assert_no_leftovers, assert_same_run, kill, newest_step, ranks_of,
                             some_text, wait_until, words)

minigpt = sys.argv[1]
LAUNCH = pathlib.Path(__file__).resolve().parents[3] / "scripts/launch.sh"
seconds = float(os.environ.get("TRIAX_SECONDS", "3"))
STEPS = 300


def start(text, run, *options, **flags):
    flags = dict(MODEL, data=text, out=run, steps=STEPS, save_every=10, keep=2, val_every=0, layers=2, dp=2,
                 pp=2) | flags
    return Run([LAUNCH, "-n", "4", *options, "--", minigpt, "train", *words(**flags)], f"{run}.stderr")


def finish(job, code):
    got = job.finish(20 * seconds)
    assert got == code, f"exit code {got}, expected {code}\n{job.stderr()}"


def killed_and_stopped(text, run):
    with start(text, run, "--restarts", "5", profile="2-3") as job:
        def wait(condition):
            assert wait_until(condition, 10 * seconds), f"{job.process.poll()}, {newest_step(run)}\n{job.stderr()}"

        def restarts():
            return job.stderr().count("launch: restart")

        wait(lambda: newest_step(run) >= 30)
        kill(ranks_of(run)[2])
        wait(lambda: restarts() == 1)
        first = newest_step(run)
        wait(lambda: len(ranks_of(run)) == 4)
        kill(ranks_of(run)[0])
        wait(lambda: restarts() == 2)
        wait(lambda: newest_step(run) > first + 10)
        job.process.send_signal(signal.SIGTERM)
        finish(job, 75)
        assert ranks_of(run) == [], "ranks are left"
    # Open MPI may complain about a rank that is killed while it starts.
    said = [line for line in job.stderr().splitlines() if not line.startswith("  ") and "PMIX ERROR" not in line]
    print("\n".join(said))
    assert said == [
        said[0], f"launch: restart 1 of 5 in 1 s: --resume auto, newest checkpoint step-{first}",
        said[2], said[3]], said
    assert said[3].startswith("launch: restart 2 of 5 in 2 s: "), said  # on a busy machine there may be a checkpoint
    assert said[0].startswith("triax: error 137: launch: rank "), said
    assert said[2].startswith(("triax: error 137: launch: rank ", "triax: error 137: launch: a rank ")), said  # too young


with tempfile.TemporaryDirectory(prefix="triax-restart-") as path:
    path = pathlib.Path(path)
    text = path / "text.txt"
    text.write_text(some_text())
    with start(text, path / "quiet") as quiet:
        finish(quiet, 0)
    killed_and_stopped(text, path / "run")
    with start(text, path / "run", resume="auto") as last:
        finish(last, 0)
    assert_same_run(path / "run", path / "quiet", STEPS)
    assert_no_leftovers(path / "run")
