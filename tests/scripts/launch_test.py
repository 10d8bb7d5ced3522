"""What scripts/launch.sh asks of mpirun and makes of what comes back.

mpirun is a stand-in that notes how it was called and then does what a test wants. With the real one:
tests/examples/programs/launch_test.py.
"""

import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

LAUNCH = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "launch.sh"
CORES = len(os.sched_getaffinity(0))
LAUNCHER_VARIABLES = ("OMP_", "TRIAX_", "OMPI_", "OPAL_", "PMI_", "PMIX_", "SLURM_", "NCCL_", "UCX_", "CUDA_")


class Launching(unittest.TestCase):
    """Starts launch.sh, which starts the stand-in."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.mpirun(":")

    def file(self, name, text, mode=0o644):
        path = self.folder / name
        path.write_text(text)
        path.chmod(mode)
        return path

    def mpirun(self, body, name="mpirun"):
        """Its own words go to file descriptor 9, as Open MPI's do when told so."""
        self.file(name, f'#!/bin/bash\nprintf "%s\\n" "$@" >{self.folder}/words\nenv >{self.folder}/env\n'
                            f'[ "$OPAL_OUTPUT_STDERR_FD" = 9 ] || exit 99\n{body}\n', 0o755)

    def launch(self, *words, **environment):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHER_VARIABLES)}
        clean.update(environment, PATH=f"{self.folder}:{os.environ['PATH']}")
        done = subprocess.run([LAUNCH, *map(str, words)], env=clean, capture_output=True, text=True, timeout=30,
                              cwd=self.folder)
        self.output = done.stdout
        return done.returncode, done.stderr

    def start(self, *words):
        environment = dict(os.environ, PATH=f"{self.folder}:{os.environ['PATH']}")
        return subprocess.Popen([LAUNCH, *map(str, words)], env=environment, stdout=subprocess.PIPE, text=True)

    def end(self, job):
        """Kills all of a job at one moment, so that nothing of it can clean up."""
        found = [job.pid]
        for pid in found:
            for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in found:
                os.kill(pid, number)
        job.wait()
        job.stdout.close()
        while any(self.lives(pid) for pid in found):
            time.sleep(0.01)

    def lives(self, pid):
        try:
            return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        except (FileNotFoundError, ProcessLookupError):
            return False

    def words(self):
        """How mpirun was called, as one line; and its environment."""
        environment = (self.folder / "env").read_text().splitlines()
        return (self.folder / "words").read_text().replace("\n", " "), environment

    def refused(self, code, *parts, words=(), **environment):
        status, error = self.launch(*words, **environment)
        self.assertEqual(status, code, error)
        self.assertTrue(error.startswith(f"triax: error {code}: launch: "), error)
        for part in parts:
            self.assertIn(str(part), error)
        self.assertFalse((self.folder / "words").exists(), "mpirun was called")


class LaunchTest(Launching):
    def test_help(self):
        status, error = self.launch("--help")
        self.assertEqual((status, error), (0, ""))
        for word in ("-n N", "--hosts FILE", "--threads N", "--bind core|none", "--restarts N", "--elastic", "-x NAME"):
            self.assertIn(word, self.output)

    def test_refuses_what_makes_no_sense(self):
        run = ("--", "true")
        self.refused(64, "--widht", "Options: -n", words=("-n", "2", "--widht", "3", *run))
        for n in ("0", "-1", "two", "1.5", ""):
            self.refused(64, "-n", words=("-n", n, *run))
        self.refused(64, "-n has no value", words=("-n",))
        self.refused(64, "how many ranks", words=run)
        self.refused(64, "--threads 0", words=("-n", "2", "--threads", "0", *run))
        self.refused(64, "--bind socket", "core or none", words=("-n", "2", "--bind", "socket", *run))
        self.refused(64, "no program", words=("-n", "2"))
        self.refused(66, "no such program: ./nowhere", words=("-n", "2", "--", "./nowhere"))
        self.refused(66, "no such program", words=("-n", "2", "--", self.folder))
        self.refused(78, "cannot be executed", words=("-n", "2", "--", self.file("data", "")))
        for name in ("", "1X", "A-B=2", "=3"):
            self.refused(64, f"-x {name}; expected NAME or NAME=VALUE", words=("-n", "2", "-x", name, *run))
        self.refused(64, "-x UNSET_HERE, but", "UNSET_HERE=VALUE", words=("-n", "2", "-x", "UNSET_HERE", *run))
        for hosts in ("nowhere", self.folder):
            self.refused(66, "no such file", "slots=", words=("-n", "2", "--hosts", hosts, *run))
        self.refused(78, "--bind core: 4096 ranks", "Valid", words=("-n", "4096", "--bind", "core", *run))

    def test_more_ranks_than_cores_share_them(self):
        self.assertEqual(self.launch("-n", 4 * CORES, "true"), (0, ""))
        words, environment = self.words()
        self.assertIn(f"-np {4 * CORES} ", words)
        self.assertIn("--oversubscribe", words)
        self.assertIn("--mca mpi_yield_when_idle 1", words)
        self.assertIn("--bind-to none", words)
        self.assertFalse(any(v.startswith("OMP_NUM_THREADS") for v in environment))  # each rank knows its share

    def test_one_rank_takes_all_cores(self):
        self.launch("-n", 1, "--", "true")
        words, environment = self.words()
        self.assertNotIn("--oversubscribe", words)
        self.assertNotIn("yield", words)
        self.assertFalse(any(v.startswith("OMP_NUM_THREADS") for v in environment))

    def test_a_machine_may_not_know_its_cores(self):
        for body in ("exit 1", "echo '# no cores here'"):
            self.file("lscpu", f"#!/bin/sh\n{body}\n", 0o755)
            self.assertEqual(self.launch("-n", 1, "--", "true"), (0, ""))
            self.assertIn("-np 1 ", self.words()[0])

    def test_threads_are_the_callers_to_choose(self):
        self.launch("-n", 1, "true", OMP_NUM_THREADS="7")
        self.assertIn("OMP_NUM_THREADS=7", self.words()[1])
        self.launch("-n", 1, "--threads", 5, "true", OMP_NUM_THREADS="7")
        self.assertIn("OMP_NUM_THREADS=5", self.words()[1])

    def test_binding_gives_a_rank_its_cores(self):
        self.launch("-n", 1, "--threads", 1, "--bind", "core", "true")
        self.assertIn("--bind-to core ", self.words()[0])
        hosts = self.file("hosts", "a slots=8\n")
        self.launch("-n", 2, "--threads", 3, "--bind", "core", "--hosts", hosts, "true")
        self.assertIn("--map-by slot:PE=3 ", self.words()[0])

    def test_hosts_say_how_many_ranks_fit(self):
        hosts = self.file("hosts", "# two\na slots=4\n\nb  slots = 4  # big\n")
        self.launch("-n", 8, "--hosts", hosts, "true", TRIAX_TIMEOUT="5", OMP_PLACES="cores", OTHER="x")
        words, environment = self.words()
        self.assertIn(f"--hostfile {hosts} ", words)
        self.assertNotIn("--oversubscribe", words)
        for variable in ("TRIAX_TIMEOUT", "OMP_PLACES", "TRIAX_ONE_REPORT"):
            self.assertIn(f"-x {variable} ", words)
        self.assertNotIn("OTHER", words)
        self.assertFalse(any(v.startswith("OMP_NUM_THREADS") for v in environment))  # each host knows its own
        self.launch("-n", 9, "--hosts", hosts, "true")
        self.assertIn("--oversubscribe", self.words()[0])
        open_end = self.file("hosts", "a slots=4\nb\n")
        self.launch("-n", 9, "--hosts", open_end, "true")
        self.assertNotIn("--oversubscribe", self.words()[0])

    def refuses_hosts(self, content, *parts):
        hosts = self.folder / "hosts"
        hosts.write_bytes(content)
        self.refused(78, f"--hosts {hosts}", *parts, words=("-n", "2", "--hosts", hosts, "--", "true"))

    def test_hosts_that_mpirun_cannot_read_are_refused(self):
        self.refuses_hosts(b"a slots=2\r\n", "end in CR LF", "sed -i")
        self.refuses_hosts(b"\xef\xbb\xbfa slots=2\n", "begins with a byte-order mark", "sed -i")
        self.refuses_hosts(b"\xef\xbb\xbfa slots=2\r\n", "begins with a byte-order mark")
        self.refuses_hosts("a slots=2\n".encode("utf-16"), "UTF-16", "iconv")
        for none in b"", b"\n \t\n", b"# only\n#comments", b"// only\n":
            self.refuses_hosts(none, "names no host", "NAME slots=RANKS")
        for word in ("slots=abc", "slots=-1", "lots=2", "slots=", "slots=2.5", "Slots=2", "slots:2", "slots", "2",
                     "slots=0x10", 'slots="2"', "slots=2,", "max_slots=many", "sl\xf6ts=2"):
            self.refuses_hosts(f"# two\na slots=4\n\nb {word} # c\n".encode(), f"line 4: `{word}`; expected NAME slots=RANKS")
        self.refuses_hosts(b"a slots = x\n", "line 1: `slots=x`")
        for name in "a,", "a:4", "slots=2", "[a]", "a/b", "h\xf6st", "a\xa0slots=2", "b@c@d":
            self.refuses_hosts(f"{name} slots=2\n".encode(), f"line 1: `{name}`")

    def test_hosts_that_mpirun_reads_are_left_to_it(self):
        for line in ("a", "a-1.b_c slots=2 max_slots=4", "10.0.0.1 slots=2", "fe80::1 slots=2", "user@a slots=2",
                     "a slots = 2  max-slots =3", "a cpu=2 // two", "a\tslots=2", "^a", "a username=bob count=2"):
            self.assertEqual(self.launch("-n", 2, "--hosts", self.file("hosts", line + "\n"), "true"), (0, ""), line)

    def test_variables_reach_every_host(self):
        hosts = self.file("hosts", "a slots=4\n")
        known = ["NCCL_DEBUG", "NCCL_SOCKET_IFNAME", "CUDA_VISIBLE_DEVICES", "UCX_TLS", "LD_LIBRARY_PATH", "GOMP_SPINCOUNT",
                 "FI_PROVIDER", "CUBLAS_WORKSPACE_CONFIG", "NVIDIA_TF32_OVERRIDE"]
        others = dict(MKL_DEBUG="1", OPENBLAS_CORETYPE="x", MY_NCCL_DEBUG="1", LD_LIBRARY_PATHS="x", HERE="1 2")
        self.launch("-n", 2, "--hosts", hosts, "true", **dict.fromkeys(known, "0"), **others)
        for name in known:
            self.assertEqual(self.words()[0].count(f"-x {name} "), 1, name)
        for name in others:
            self.assertNotIn(f"-x {name} ", self.words()[0])
        self.launch("-n", 2, "-x", "HERE", "-x", "NEW=3 = 4", "-x", "NCCL_DEBUG=INFO", "--hosts", hosts, "true", HERE="1 2",
                    NCCL_DEBUG="WARN")
        words, environment = self.words()
        for name in "HERE", "NEW", "NCCL_DEBUG":
            self.assertEqual(words.count(f"-x {name} "), 1, name)
        for variable in "HERE=1 2", "NEW=3 = 4", "NCCL_DEBUG=INFO":
            self.assertIn(variable, environment)

    def test_gpus_of_one_host_are_not_forced_on_others(self):
        def exported(*words, **environment):
            self.launch("-n", 2, *words, "true", **environment)
            return "-x CUDA_VISIBLE_DEVICES " in self.words()[0]

        hosts = ("--hosts", self.file("hosts", "a slots=4\n"))
        self.assertTrue(exported(*hosts, CUDA_VISIBLE_DEVICES="4,5"))
        for unique in "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "MIG-3,MIG-4":
            self.assertFalse(exported(*hosts, CUDA_VISIBLE_DEVICES=unique))
        self.assertFalse(exported(SLURM_JOB_ID="1", CUDA_VISIBLE_DEVICES="4,5"))
        self.assertTrue(exported("-x", "CUDA_VISIBLE_DEVICES", SLURM_JOB_ID="1", CUDA_VISIBLE_DEVICES="4,5"))

    def test_a_rank_of_srun_becomes_the_program(self):
        rank = dict(SLURM_STEP_NUM_TASKS="8", SLURM_PROCID="3")
        shown = ("sh", "-c", "echo rank $SLURM_PROCID, $OMP_NUM_THREADS threads")
        self.assertEqual(self.launch("-n", 8, "--threads", 2, "--", *shown, **rank), (0, ""))
        self.assertEqual(self.output, "rank 3, 2 threads\n")
        self.assertEqual(self.launch("--", *shown, **rank)[0], 0)
        self.assertFalse((self.folder / "words").exists(), "mpirun was called")
        self.refused(78, "-n 4", "8 ranks", words=("-n", "4", "--", "true"), **rank)
        self.launch("-n", 2, "true", SLURM_JOB_ID="1", SLURM_STEP_NUM_TASKS="1")  # a shell in an allocation
        self.assertIn("-np 2 ", self.words()[0])

    def test_arguments_arrive_as_they_are(self):
        odd = ["a b", "", "*", "-n", "--", "$HOME", "'"]
        self.launch("-n", 1, "--", "true", *odd)
        words = (self.folder / "words").read_text().split("\n")
        self.assertEqual(words[-len(odd) - 2:], ["true", *odd, ""])

    def ends(self, body, code, *parts, error=None, lines=None):
        """A job whose mpirun does this: its exit code, and parts of what is on stderr, or all of it, or its lines."""
        with self.subTest(body=body):
            self.mpirun(body)
            status, said = self.launch("-n", 4, "true")
            self.assertEqual(status, code, said)
            for part in parts:
                self.assertIn(part, said)
            self.assertEqual(said if error is None else error, said)
            self.assertEqual(len(said.splitlines()) if lines is None else lines, len(said.splitlines()), said)
            self.assertLessEqual(len(said.splitlines()), 12)

    def test_passes_on_what_the_program_says(self):
        self.ends("echo out; echo err >&2; printf 'no newline' >&2; cat", 0, error="err\nno newline\n")
        self.assertEqual(self.output, "out\n")
        self.ends("printf 'first half' >&2; sleep 2.5; echo ', second' >&2", 0, error="first half, second\n")
        self.ends("echo '[warn] Epoll MOD(1) on fd 26 failed.  Old events were 6; read change was 2 (del); write change was 0 "
                  "(none); close change was 0 (none): Bad file descriptor' >&2; echo '[warn] of the program' >&2; exit 75",
                  75, error="[warn] of the program\n")  # but for what mpirun's libraries say

    def test_shows_one_report_last(self):
        self.ends("""
            printf 'triax: error 65: first\\n  its line\\n' >&2
            printf 'noise\\ntriax: error 65: second\\n  another line\\nnoise\\n' >&2
            echo 'MPI_ABORT was invoked on rank 0' >&9
            exit 65""", 65, error="noise\nnoise\ntriax: error 65: first\n  its line\n")
        # The cause, not what came of it.
        self.ends("""
            printf 'triax: error 72: lost\\n  of it\\ntriax: error 66: no text\\n  its line\\n' >&2
            printf 'triax: error 72: lost as well\\n' >&2; exit 72""", 66, error="triax: error 66: no text\n  its line\n")
        self.ends("echo 'triax: error 70: long' >&2; for i in {1..30}; do echo \"  $i\" >&2; done; exit 70", 70, lines=12)

    def test_ends_a_job_that_does_not_end(self):
        self.ends("echo 'triax: error 72: lost' >&2; sleep 60", 72, error="triax: error 72: lost\n")
        self.ends("echo 'Primary job terminated normally, but 1 process returned' >&9; sleep 60", 137)

    def test_says_what_was_lost(self):
        self.ends("echo 'mpirun noticed that process rank 3 with PID 0 on node alpha exited on signal 9 (Killed).' >&9; "
                  "exit 137", 137, "triax: error 137: launch: rank 3 on alpha was ended by signal 9 (KILL)")
        self.ends("printf 'mpirun has exited due to process rank 1 with PID 0 on\\nnode beta exiting improperly. There are' "
                  ">&9; exit 1", 72, "rank 1 on beta")
        self.ends("printf 'ORTE has lost communication with a remote daemon.\\n\\n  HNP daemon   : [[1,0],0] on node alpha\\n"
                  "  Remote daemon: [[1,0],1] on node beta\\n\\nThis is' >&9; exit 205", 72, "host beta was lost")
        self.ends("trap : USR1; kill -TERM $PPID; sleep 0.5; exit 1", 143, "stopped by signal 15, which mpirun got as well")

    def test_says_why_mpirun_did_not_start(self):
        for said in ("not enough slots available", "unable to reliably start one or more daemons"):
            self.ends(f"echo 'There are {said}' >&9; exit 1", 78, lines=2)
        self.ends("echo 'a bad parameter in the hostfile' >&9; exit 1", 78,
                  "mpirun could not start the job; it says:\n  a bad parameter in the hostfile")
        self.mpirun("printf -- '-----\\nA request was made to bind to\\n\\n  and\\n  so\\n  on\\n  for\\n"
                    "  many\\n  lines\\n  more\\n-----\\n' >&9; exit 1")
        status, error = self.launch("-n", 4, "true")
        self.assertEqual(status, 78)
        self.assertIn("  A request was made to bind to\n", error)
        self.assertNotIn("-----", error)
        self.assertLessEqual(len(error.splitlines()), 12)

    def test_other_codes_pass(self):
        self.ends("exit 1", 72, "without a word")
        self.ends("echo 'Primary job terminated normally' >&9; exit 139", 139, "a rank was ended by signal 11 (SEGV)")
        for code in (1, 3, 200):
            self.ends(f"echo 'Primary job terminated normally' >&9; exit {code}", code, lines=1)
        self.ends("printf 'The first process to do so was:\\n  Process name: [[1,1],5]\\n  Exit code:    3' >&9; exit 141",
                  3)  # another rank came to write into a pipe that was closed
        self.ends("exit 75", 75, error="")
        self.ends("echo 'MPI_ABORT was invoked on rank 1 with errorcode 256.' >&9; exit 0", 70)

    def test_files_of_the_job_are_its_own_and_go(self):
        room = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()
        self.mpirun("""
            while [ "$1" != orte_tmpdir_base ]; do shift; done
            stat -c '%a %u' "$2"; [ "$4 $5" = "btl_vader_backing_directory $2" ] && echo "$2"
            touch "$2/of-mpi" """)
        self.assertEqual(self.launch("-n", 1, "true")[0], 0)
        mode, path = self.output.splitlines()
        self.assertEqual(mode, f"700 {os.getuid()}")
        self.assertRegex(path, f"^{room}/triax-launch[.].{{10}}$")
        self.assertFalse(os.path.exists(path))

    def test_files_are_elsewhere_where_memory_has_no_room_for_them(self):
        self.mpirun('while [ "$1" != orte_tmpdir_base ]; do shift; done; dirname "$2"')
        for said in "exit 1", "echo 'tmpfs 9216 0 9216 0% /dev/shm'", "echo nothing":
            self.file("df", f"#!/bin/bash\n{said}\n", 0o755)
            self.assertEqual(self.launch("-n", 2, "true", TMPDIR=self.folder), (0, ""), said)
            self.assertEqual(self.output.strip(), str(self.folder), said)

    def test_removes_what_killed_jobs_left(self):
        self.mpirun('while [ "$1" != orte_tmpdir_base ]; do shift; done; echo "$2"; exec sleep 60')
        jobs = [self.start("-n", 1, "true") for _ in range(2)]
        killed, living = [pathlib.Path(job.stdout.readline().strip()) for job in jobs]
        link = killed.with_name(f"triax-launch.{os.getpid()}")
        link.symlink_to(self.folder)
        self.addCleanup(link.unlink)
        self.end(jobs[0])
        self.assertTrue(killed.is_dir())
        self.mpirun(":")
        self.assertEqual(self.launch("-n", 1, "true")[0], 0)
        self.assertFalse(killed.exists())
        self.assertTrue(living.is_dir() and self.folder.is_dir())
        self.end(jobs[1])
        self.launch("-n", 1, "true")
        self.assertFalse(living.exists())

if __name__ == "__main__":
    unittest.main()
