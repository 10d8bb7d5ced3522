"""When scripts/launch.sh --restarts starts a job again, with which words, and what it says.

mpirun and sleep are stand-ins. With the real ones: tests/examples/programs/elastic_test.py.
"""

import signal
import subprocess
import time
import unittest

import launch_test

# A start of the job appends its words to `starts` and does what the test wants of that start.
MPIRUN = """
echo "$*" >>starts
save() { mkdir -p out/step-$1 && date +%N >out/step-$1/manifest.json; }
lose() { echo 'triax: error 72: lost' >&2; exit 72; }
die() { exit 137; }
case $(wc -l <starts) in {cases} *) exit 99 ;; esac
"""
SLEEP = """#!/bin/bash
case $1 in 0*) exec /bin/sleep $1 ;; *) echo $1 >>pauses; {body} ;; esac
"""
AGAIN = "launch: restart"
NOT = "  Not restarted: "


class LaunchRestartsTest(launch_test.Launching):
    def starts(self, *bodies, pause=":"):
        for name in "starts", "pauses":
            (self.folder / name).unlink(missing_ok=True)
        cases = " ".join(f"{i}) {body} ;;" for i, body in enumerate(bodies, 1))
        self.mpirun(MPIRUN.replace("{cases}", cases))
        self.file("sleep", SLEEP.replace("{body}", pause), 0o755)

    def restarted(self, code, *words, restarts=3):
        """The words of the program in each start; what was said of restarts."""
        status, error = self.launch("-n", 2, "--restarts", restarts, "--", "true", *words)
        self.assertEqual(status, code, error)
        self.error = error
        starts = [line.partition(" true")[2].strip() for line in (self.folder / "starts").read_text().splitlines()]
        return starts, [line for line in error.splitlines() if line.startswith((AGAIN, NOT))]

    def pauses(self):
        return (self.folder / "pauses").read_text().split()

    def test_goes_on_from_the_newest_checkpoint(self):
        self.starts("save 3; die", "save 6; lose", "exit 0")
        starts, said = self.restarted(0, "--out", "out", "--steps", 9)
        self.assertEqual(starts, ["--out out --steps 9"] + 2 * ["--out out --steps 9 --resume auto"])
        self.assertEqual(said, [f"{AGAIN} 1 of 3 in 1 s: --resume auto, newest checkpoint step-3",
                                f"{AGAIN} 2 of 3 in 2 s: --resume auto, newest checkpoint step-6"])
        self.assertIn("triax: error 137: launch: mpirun was ended", self.error)
        self.assertEqual(self.pauses(), ["1", "2"])

    def test_what_was_said_of_resuming_holds_until_a_checkpoint(self):
        for path in (["--resume", "other/step-5"], ["--resume=other/step-5"]):
            self.starts("die", "save 6; die", "exit 0")
            starts, said = self.restarted(0, *path, "--out=out")
            first = " ".join([*path, "--out=out"])
            self.assertEqual(starts, [first, first, "--out=out --resume auto"])
            self.assertEqual(said[0], f"{AGAIN} 1 of 3 in 1 s: the same command, no new checkpoint yet")

    def test_last_good_stays(self):
        self.starts("save 6; die", "save 6; die", "exit 0")  # the same step again is progress, too
        starts, said = self.restarted(0, "--resume", "last-good", "--out", "out")
        self.assertEqual(starts, 3 * ["--resume last-good --out out"])
        self.assertEqual(said[1], f"{AGAIN} 2 of 3 in 2 s: --resume last-good, newest checkpoint step-6")

    def test_ends_when_all_are_used(self):
        self.starts(*(f"save {i}; die" for i in range(1, 9)))
        starts, said = self.restarted(137, "--out", "out", restarts=6)
        self.assertEqual((len(starts), said[-1]), (7, NOT + "all restarts (6) are used."))
        self.assertEqual(self.pauses(), ["1", "2", "4", "8", "16", "32"])
        self.assertTrue(self.error.endswith(said[-1] + "\n"))

    def test_ends_without_progress_twice(self):
        self.starts("save 1; die", "die", "save 2; die", "lose", "lose")
        starts, said = self.restarted(72, "--out", "out", restarts=9)
        self.assertEqual((len(starts), said[-1]), (5, NOT + "two starts in a row saved no new checkpoint."))
        (self.folder / "out" / "step-9.tmp-1").mkdir()  # unfinished
        self.starts("echo >out/step-9.tmp-1/manifest.json; die", "die")
        self.assertEqual(len(self.restarted(137, "--out", "out")[0]), 2)

    def test_only_lost_ranks_are_worth_it(self):
        for code in (1, 64, 65, 70, 71, 73, 76, 77, 78, 139):
            self.starts(f"save 1; echo 'triax: error {code}: no' >&2; exit {code}")
            starts, said = self.restarted(code, "--out", "out")
            self.assertEqual((len(starts), said), (
                1, [NOT + "only lost and killed ranks (72, 137) are worth another start."]))
        for code in (0, 75):
            self.starts(f"save 1; exit {code}")
            self.assertEqual(self.restarted(code, "--out", "out"), (["--out out"], []))
            self.assertEqual(self.error, "")

    def signalled(self, number, when):
        """Sends a signal once the file `when` is there."""
        clean = dict(PATH=f"{self.folder}:/usr/bin:/bin", LC_ALL="C")
        with subprocess.Popen([launch_test.LAUNCH, "-n", "1", "--restarts", "3", "--", "true", "--out", "out"],
                              env=clean, cwd=self.folder, stderr=subprocess.PIPE, text=True) as job:
            while not (self.folder / when).exists():
                time.sleep(0.01)
            job.send_signal(number)
            error = job.communicate(timeout=20)[1]
        return job.returncode, ["", *error.splitlines()][-1], len((self.folder / "starts").read_text().splitlines())

    def test_who_asks_to_stop_gets_no_restart(self):
        for number in signal.SIGTERM, signal.SIGUSR1:
            self.starts("trap 'exit 75' USR1; save 1; /bin/sleep 20 & wait; exit 99")
            self.assertEqual(self.signalled(number, "out/step-1/manifest.json")[::2], (75, 1))
            (self.folder / "out/step-1/manifest.json").unlink()
            self.starts("trap 'die' USR1; save 1; /bin/sleep 20 & wait; exit 99")
            status, last, starts = self.signalled(number, "out/step-1/manifest.json")
            self.assertEqual((status, starts), (137, 1))
            self.assertEqual(last, f"{NOT}signal {int(number)} asked the job to stop.")
            (self.folder / "out/step-1/manifest.json").unlink()

    def test_a_stop_between_two_starts(self):
        for number in signal.SIGTERM, signal.SIGUSR1:
            self.starts("die", pause="exec /bin/sleep 20")
            status, last, starts = self.signalled(number, "pauses")
            self.assertEqual((status, starts), (128 + number, 1))
            self.assertIn("with nothing saved", last)
        self.starts("save 4; die", pause="exec /bin/sleep 20")
        status, last, starts = self.signalled(signal.SIGTERM, "pauses")
        self.assertEqual((status, starts), (75, 1))
        self.assertIn("newest checkpoint, step-4", last)

    def test_refuses_what_makes_no_sense(self):
        for n in ("-1", "two", "1.5", "", "01"):
            self.refused(64, f"--restarts {n}", words=("-n", 2, "--restarts", n, "--", "true", "--out", "out"))
        self.refused(64, "no --out DIR", words=("-n", 2, "--restarts", 3, "--", "true", "--outer", "out"))
        self.refused(78, "--restarts 3", "8 ranks", words=("--restarts", 3, "--", "true", "--out", "out"),
                     SLURM_STEP_NUM_TASKS="8")
        self.starts("die")
        self.assertEqual(self.restarted(137, restarts=0), ([""], []))


if __name__ == "__main__":
    unittest.main()
