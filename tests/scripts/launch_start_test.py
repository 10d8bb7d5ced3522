"""What scripts/launch.sh makes of a mpirun that could not start the job, that only warns, or that hangs."""

import concurrent.futures
import os
import pathlib
import subprocess
import tempfile
import time
import unittest

from launch_test import LAUNCH, Launching

RUN_THE_PROGRAM = 'while [ "$1" != setpriv ]; do shift; done; "$@"'  # as one rank, in a stand-in for mpirun


class LaunchStartTest(Launching):
    def test_what_finished_has_finished(self):
        """Whatever else mpirun has to say."""
        for said in ("WARNING: a request was made to bind a process. While the system supports binding",
                     "Open RTE detected a parse error in the hostfile", "unable to launch", "not enough slots",
                     "unable to reliably start", "MPI_INIT failed", "failed to start", "not able to launch", "Exit code: 3",
                     "Primary job terminated normally", "process rank 1 with PID 7 on node a exited on signal 9",
                     "process rank 1 with PID 7 on node a exiting improperly", "Remote daemon: x on node b"):
            self.mpirun(f"echo '{said}' >&9; exit 0")
            self.assertEqual(self.launch("-n", 2, "true"), (0, ""), said)
        self.mpirun("printf 'triax: error 65: of a child\\n  that was expected\\n' >&2")
        self.assertEqual(self.launch("-n", 1, "true"), (0, "triax: error 65: of a child\n  that was expected\n"))

    def test_says_why_mpirun_could_not_start(self):
        """Its own words, in whatever form, if no rank has begun; and the cure where there is one."""
        def could_not_start(body, *parts, **environment):
            self.mpirun(body)
            status, error = self.launch("-n", 2, "true", **environment)
            self.assertEqual(status, 78, error)
            self.assertIn("triax: error 78: launch: mpirun could not start the job", error)
            self.assertLessEqual(len(error[error.index("triax: error"):].splitlines()), 12, error)
            for part in parts:
                self.assertIn(part, error)
            return error

        for code in 1, 3, 127, 128, 213, 243, 255:
            error = could_not_start(f"printf -- '---\\nNo  networks\\n\\n  at all\\n---\\n' >&9; exit {code}",
                                    "it says:\n  No  networks\n    at all\n")
        error = could_not_start("printf 'The agent \"plm_rsh_agent\"\\n[h:1] [[1,0],0] ORTE_ERROR_LOG: x in file y.c\\n"
                                "An internal error has occurred in ORTE:\\n[[1,0],0] FORCE-TERMINATE AT x\\n"
                                "This is something that should be reported to the developers.\\n' >&9; exit 243",
                                "OMPI_MCA_plm=isolated", "Set in the environment: OMPI_MCA_plm_rsh_agent=/no/ssh\n",
                                OMPI_MCA_plm_rsh_agent="/no/ssh")
        for noise in "ORTE", "developers":
            self.assertNotIn(noise, error)
        for code in 1, 126, 127, 255:
            could_not_start(f"echo 'mpirun: error while loading shared libraries: libx.so' >&2; exit {code}",
                            "libraries: libx.so\ntriax: error 78", "What it says stands above.")
        failed = ("Primary job  terminated normally", "  Exit code:    1")
        for said in "*** An error occurred in MPI_Init", "It looks like MPI_INIT failed for some reason":
            error = could_not_start(f"{RUN_THE_PROGRAM}; printf '{failed[0]}\\n{said}\\n{failed[1]}\\n' >&9; exit 1",
                                    f"  {said}\n")
            for words in failed:
                self.assertNotIn(words, error)
        could_not_start(f"{RUN_THE_PROGRAM}; echo '*** An error occurred in MPI_Init_thread' >&2; echo '{failed[0]}' >&9; "
                        "exit 137", "stands above")

    def test_no_room_for_files_is_named(self):
        self.file("df", "#!/bin/bash\necho tmpfs 64 0 64 0% $2\n", 0o755)
        self.refused(78, "64 KiB in /tmp, 64 KiB in /dev/shm", "TMPDIR=DIR", "--ipc=host", words=("-n", "2", "true"),
                     TMPDIR="/tmp")

    def test_a_program_that_another_host_has_not_is_named(self):
        program = self.file("program", "#!/bin/sh\n", 0o755)
        self.mpirun(f"rm {program}; {RUN_THE_PROGRAM}")
        status, error = self.launch("-n", 1, program)
        self.assertEqual((status, len(error.splitlines())), (66, 1), error)
        self.assertIn(f"launch: no such program on {os.uname().nodename}: {program}", error)

    def stop(self, *cases):
        """Of each (stand-in, words of launch.sh): exit code, stderr, and seconds from one SIGTERM, sent when it has
        written a line and begun to wait. All at once, since it is long."""
        def one(case):
            folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
            self.mpirun(case[0], folder / "mpirun")
            environment = dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}")
            with subprocess.Popen([LAUNCH, *map(str, case[1:])], env=environment, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True) as job:
                job.stdout.readline()
                time.sleep(1)
                job.terminate()
                since = time.monotonic()
                try:
                    return job.communicate(timeout=40)[1], job.returncode, time.monotonic() - since
                except subprocess.TimeoutExpired:
                    job.terminate()  # the second one ends it
                    return job.communicate(timeout=10)[1], "one SIGTERM did not end it", 40

        with concurrent.futures.ThreadPoolExecutor() as pool:
            return list(pool.map(one, cases))

    def test_one_signal_ends_a_mpirun_that_hangs(self):
        hangs = "trap '' TERM INT HUP USR1; echo ready; sleep 60"
        hosts = ("--hosts", self.file("hosts", "a slots=4\n"))
        before = "", RUN_THE_PROGRAM + "; "  # no rank has begun, or all have ended
        for error, status, _ in self.stop(*[(b + hangs, "-n", 2, *where, "true") for b in before for where in ((), hosts)]):
            self.assertEqual(status, 143, error)
            self.assertIn("stopped by signal 15: no rank was at work, and mpirun did not end", error)

    def test_a_rank_may_save_as_long_as_it_takes(self):
        saves = self.file("saves", "#!/bin/bash\ntrap 'sleep 15; echo saved >&2; exit 75' USR1\necho ready\n"
                                   "while :; do sleep 0.1; done\n", 0o755)
        hosts = ("--hosts", self.file("hosts", "a slots=4\n"))
        passes = 'trap "kill -USR1 \\$rank" USR1; while [ "$1" != setpriv ]; do shift; done; {} "$@" & rank=$!; ' \
                 'wait $rank; wait $rank'
        elsewhere = 'set -- "${@:1:6}" /nowhere "${@:8}";'  # a host on which launch.sh has no files
        cases = ((), ""), (hosts, ""), (hosts, elsewhere)
        for error, status, seconds in self.stop(*[(passes.format(where), "-n", 1, *words, saves) for words, where in cases]):
            self.assertEqual((status, error), (75, "saved\n"))
            self.assertGreater(seconds, 14)

    def test_a_signal_before_the_ranks_reaches_them_when_they_have_begun(self):
        stops = self.file("stops", "#!/bin/bash\ntrap 'echo asked >&2; exit 75' USR1\nwhile :; do sleep 0.1; done\n", 0o755)
        late = 'trap : USR1; echo ready; sleep 3; trap "kill -USR1 \\$rank" USR1; ' \
               'while [ "$1" != setpriv ]; do shift; done; "$@" & rank=$!; wait $rank; wait $rank'
        (error, status, _), = self.stop((late, "-n", 1, stops))
        self.assertEqual((status, error), (75, "asked\n"))


if __name__ == "__main__":
    unittest.main()
