"""On which hosts and ranks scripts/launch.sh --elastic starts a job again, and what it says.

mpirun, ssh, sleep and the program are stand-ins. With the real ones: tests/examples/programs/elastic_test.py.
"""

import signal
import subprocess
import time
import unittest

import launch_test
from launch_restarts_test import MPIRUN, NOT, SLEEP

# Says a mesh without model parallelism, of at most `most` ranks, and notes what it was asked.
PROGRAM = """#!/bin/bash
echo "$*" >>asked
[ ! -e refuses ] || { echo 'triax: error 78: no mesh' >&2; exit 78; }
n=${@: -1}; ((n <= {most})) || n={most}
echo "$n --dp $n --pp 1 --tp 1 --micro-batch 1 --global-batch 12"
"""
SSH = """#!/bin/bash
[ "$2" = true ] && [ ! -e "$1-is-down" ]
"""


class LaunchElasticTest(launch_test.Launching):
    def starts(self, *bodies, pause=":", most=99):
        cases = " ".join(f"{i}) {body} ;;" for i, body in enumerate(bodies, 1))
        hosts = 'while [ "$1" != --hostfile ] && [ $# != 0 ]; do shift; done; [ $# = 0 ] || cat "$2" >>on\n'
        self.mpirun(MPIRUN.replace("{cases}", f"0) ;; esac\n{hosts}case $(wc -l <starts) in {cases}"))
        self.file("sleep", SLEEP.replace("{body}", pause), 0o755)
        self.file("program", PROGRAM.replace("{most}", str(most)), 0o755)
        self.file("ssh", SSH, 0o755)

    def hosts(self, *lines):
        return self.file("hosts", "\n".join(lines))

    def job(self, code, *words, n=4, restarts=5, **environment):
        """The words of the program in each start; the lines of launch.sh."""
        status, self.error = self.launch("-n", n, "--restarts", restarts, "--elastic", *words, "--", "./program",
                                         "train", "--out", "out", **environment)
        self.assertEqual(status, code, self.error)
        return self.what_was_started(), [line for line in self.error.splitlines() if line.startswith(("launch:", NOT))]

    def what_was_started(self):
        lines = (self.folder / "starts").read_text().splitlines()
        self.ranks = [int(line.split()[1]) for line in lines]
        return [line.partition(" ./program train --out out ")[2] for line in lines]

    def mesh(self, ranks):
        return f"--dp {ranks} --pp 1 --tp 1 --micro-batch 1 --global-batch 12"

    def test_a_killed_rank_is_left_out_at_once(self):
        self.starts("save 3; die", "save 6; lose", "exit 0")
        starts, said = self.job(0)
        self.assertEqual(self.ranks, [4, 3, 2])
        self.assertEqual(starts, [self.mesh(4)] + [f"--resume last-good {self.mesh(n)}" for n in (3, 2)])
        self.assertEqual(said, [
            "launch: restart 1 of 5: --resume last-good, newest checkpoint step-3; 3 ranks: --dp 3 --pp 1 --tp 1",
            "launch: restart 2 of 5: --resume last-good, newest checkpoint step-6; 2 ranks: --dp 2 --pp 1 --tp 1"])
        self.assertFalse((self.folder / "pauses").exists(), "it waited")
        self.assertEqual((self.folder / "starts").read_text().count("odls_base_sigkill_timeout 0"), 3)
        asked = (self.folder / "asked").read_text().splitlines()
        self.assertEqual(asked[0], "train --out out --mesh-for 4")
        self.assertEqual(asked[-1], "train --out out --resume last-good --micro-batch 1 --global-batch 12 --mesh-for 2")

    def test_any_axes(self):
        self.starts("save 3; die", "exit 0")
        words = PROGRAM.replace("{most}", "99").replace("--dp $n --pp 1", "--dp $n --pp 1 --cp 1")
        self.file("program", words, 0o755)
        starts, said = self.job(0)
        mesh = self.mesh(3).replace("--pp 1", "--pp 1 --cp 1")
        self.assertEqual(starts[1], f"--resume last-good {mesh}")
        self.assertTrue(said[0].endswith("; 3 ranks: --dp 3 --pp 1 --cp 1 --tp 1"), said)
        self.assertTrue((self.folder / "asked").read_text().endswith("--micro-batch 1 --global-batch 12 --mesh-for 3\n"))

    def test_never_fewer_than_the_least(self):
        self.starts("save 1; die", "save 2; die", "save 3; die", "exit 0")
        self.job(0, n="3:4")
        self.assertEqual(self.ranks, [4, 3, 3, 3])

    def test_ranks_to_spare_come_in(self):
        self.starts("save 1; die", "save 2; die", "exit 0", most=3)
        self.job(0)
        self.assertEqual(self.ranks, [3, 3, 2])

    def test_pauses_without_progress_and_ends_when_all_are_used(self):
        self.starts("die", "die", "die", "save 1; die", "die")
        _, said = self.job(137, n="2:4", restarts=4)
        self.assertEqual(self.ranks, [4, 3, 2, 2, 2])
        self.assertEqual((self.folder / "pauses").read_text().split(), ["1", "2"])  # none after the first and the fourth
        self.assertIn("the same command, no new checkpoint yet; 3 ranks", said[0])
        self.assertEqual(said[-1], NOT + "all restarts (4) are used.")

    def test_a_host_that_is_lost_is_left_out(self):
        hosts = self.hosts("# ours", "alpha slots=2", "", "  beta  slots=2 # big", "gamma slots=1")
        self.starts("save 1; touch beta-is-down; die", "save 2; die", "rm beta-is-down; save 3; die", "exit 0")
        _, said = self.job(0, "--hosts", hosts, n="2:8")
        self.assertEqual(self.ranks, [5, 3, 2, 3])  # a host; a rank; another rank, of all hosts
        self.assertEqual((self.folder / "on").read_text().split("\n")[3:5], ["alpha slots=2", "gamma slots=1"])
        self.assertEqual(said.count("launch: beta does not answer"), 2)

    def test_the_hosts_file_is_read_again(self):
        hosts = self.hosts("alpha slots=2", "beta slots=2")
        self.starts("save 1; echo 'alpha slots=2' >hosts; die", "save 2; echo 'delta slots=9' >>hosts; die", "exit 0")
        self.job(0, "--hosts", hosts)
        self.assertEqual(self.ranks, [4, 2, 3])  # a host of two is gone; of four, one is lost

    def test_the_agent_of_mpirun_is_asked(self):
        self.starts("exit 0")
        agent = self.file("agent", '#!/bin/bash\necho "$*" >>agents\n', 0o755)
        self.job(0, "--hosts", self.hosts("alpha slots=4", "localhost slots=1"),
                 OMPI_MCA_plm_rsh_agent=f"{agent} -q : rsh")
        self.assertEqual((self.folder / "agents").read_text(), "-q alpha true\n")

    def test_waits_for_hosts(self):
        hosts = self.hosts("alpha slots=2", "beta slots=2")
        self.starts("save 1; touch beta-is-down; lose", "exit 0", pause="[ $1 != 2 ] || rm beta-is-down")
        _, said = self.job(0, "--hosts", hosts, n="4:4")
        self.assertEqual(self.ranks, [4, 4])
        self.assertEqual(said.count("launch: too few ranks; looking again in 1 s"), 1)
        self.assertIn("restart 3 of 5", said[-1])
        self.starts("save 2; touch beta-is-down; lose")
        (self.folder / "starts").unlink()
        _, said = self.job(72, "--hosts", hosts, n="4:4", restarts=2)
        self.assertEqual(said[-1], NOT + "there are 2 ranks, fewer than 4.")

    def remesh(self, *bodies, hosts=("alpha slots=2", "beta slots=2"), after="out/step-1/manifest.json", n="4"):
        self.starts(*bodies)
        self.hosts(*hosts[:1])
        clean = dict(PATH=f"{self.folder}:/usr/bin:/bin", LC_ALL="C")
        with subprocess.Popen([launch_test.LAUNCH, "-n", n, "--hosts", "hosts", "--restarts", "1", "--elastic", "--",
                               "./program", "train", "--out", "out"],
                              env=clean, cwd=self.folder, stderr=subprocess.PIPE, text=True) as job:
            try:
                while not (self.folder / after).exists():
                    time.sleep(0.01)
                self.hosts(*hosts)
                job.send_signal(signal.SIGUSR2)
                self.error = job.communicate(timeout=20)[1]
            finally:
                job.kill()
        return job.returncode

    def test_sigusr2_asks_for_all_there_is(self):
        waits = "save 1; /bin/sleep 20 & wait; exit 99"
        self.assertEqual(self.remesh(f"trap 'save 5; exit 75' USR1; {waits}", "exit 0"), 0)
        starts = self.what_was_started()
        self.assertEqual((self.ranks, starts[1]), ([2, 4], f"--resume last-good {self.mesh(4)}"))
        self.assertEqual(self.error, "launch: re-mesh: --resume last-good, newest checkpoint step-5; 4 ranks: "
                                     "--dp 4 --pp 1 --tp 1\n")

    def test_sigusr2_brings_lost_ranks_back(self):
        waits = "trap 'exit 75' USR1; save 2; /bin/sleep 20 & wait; exit 99"
        self.remesh("save 1; die", waits, "exit 0", hosts=("alpha slots=4",), after="out/step-2/manifest.json")
        self.what_was_started()
        self.assertEqual(self.ranks, [4, 3, 4])

    def test_sigusr2_before_the_program_listens(self):
        self.assertEqual(self.remesh("save 1; /bin/sleep 20; exit 99", "exit 0"), 0)
        self.assertNotIn("error", self.error)
        (self.folder / "starts").unlink()
        self.assertEqual(self.remesh("trap 'exit 0' USR1; save 2; /bin/sleep 20 & wait", "exit 75",
                                     after="out/step-2/manifest.json"), 75)

    def test_sigusr2_is_no_stop(self):
        """A rank that is lost meanwhile costs a restart; the program's own stop ends the job."""
        waits = "save 1; /bin/sleep 20 & wait; exit 99"
        self.assertEqual(self.remesh(f"trap 'die' USR1; {waits}", "exit 75"), 75)
        self.what_was_started()
        self.assertEqual(self.ranks, [2, 4])
        self.assertIn("launch: restart 1 of 1: ", self.error)

    def test_what_the_program_refuses_ends_the_job(self):
        self.starts("save 1; touch refuses; die")
        self.job(78)
        self.assertTrue(self.error.endswith("triax: error 78: no mesh\n"), self.error)
        self.assertEqual(self.ranks, [4])

    def test_refuses_what_makes_no_sense(self):
        self.starts("exit 99")
        run = ("--", "./program", "train", "--out", "out")
        for n in ("5:4", "0:4", "two:4", ":4", "2:", "1:2:4"):
            self.refused(64, "-n", words=("-n", n, "--restarts", 1, "--elastic", *run))
        self.refused(64, "-n 2:4", words=("-n", "2:4", "--restarts", 1, *run))
        self.refused(64, "--elastic without --restarts", words=("-n", 4, "--elastic", *run))
        self.refused(78, "has no slots=", words=("-n", 4, "--restarts", 1, "--elastic", "--hosts",
                                                 self.hosts("alpha slots=1", "beta"), *run))
        self.refused(78, "does not say which mesh",
                     words=("-n", 4, "--restarts", 1, "--elastic", "--", "echo", "--out", "a"))
        self.hosts("alpha slots=4")
        (self.folder / "alpha-is-down").touch()
        status, error = self.launch("-n", 4, "--restarts", 1, "--elastic", "--hosts", "hosts", *run)
        self.assertEqual(status, 72)
        self.assertIn("room for no ranks, fewer than 1", error)


if __name__ == "__main__":
    unittest.main()
