"""scripts/common.sh: progress of builds and tests, whether CUDA's kernels are compiled; and what test.sh builds."""

import json
import os
import pathlib
import pty
import subprocess
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
NINJA = """
echo "[1/4] Building one"; sleep 2.2; echo "[2/4] Building two"; echo "two.cpp:3: warning: unused"; sleep 1.2
printf 'FAILED: '; sleep 1.1; echo three; echo "[4/4] Linking all"
"""
CTEST = """
echo "Test project /there"; echo "      Start  1: core.first"
echo " 1/4 Test  #1: core.first ........................   Passed    0.02 sec"; sleep 2.2
echo " 2/4 Test  #2: core.second .......................***Failed    0.02 sec"; echo "it was 3; expected 4"
echo " 4/4 Test #13: core.third ........................   Passed    0.02 sec"; echo "50% tests passed"
"""


def shell(script, **environment):
    """Runs it after common.sh; a line of progress every second."""
    done = subprocess.run(["bash", "-c", f". {SCRIPTS}/common.sh; set -euo pipefail; progress_every=1\n{script}"],
                          env={**os.environ, **environment}, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


class ProgressTest(unittest.TestCase):
    def test_a_build_says_how_far_it_is(self):
        lines = shell(f"{{ {NINJA} }} | progress build")[1].splitlines()
        self.assertRegex(lines[0], r"^    build: 25% \(1 of 4\), about \d+ s left$")
        self.assertIn("two.cpp:3: warning: unused", lines)
        self.assertIn("FAILED: three", lines)
        self.assertTrue(any("50% (2 of 4)" in line for line in lines), lines)
        self.assertRegex(lines[-1], r"^    build: 4 of 4 in \d+ s$")
        self.assertFalse(any("Building" in line or "Linking" in line for line in lines), lines)

    def test_tests_say_what_failed_and_how_far_they_are(self):
        said = shell(f"{{ {CTEST} }} | progress test")[1]
        self.assertRegex(said, r"test: 25% \(1 of 4\)")
        for line in ("#2: core.second", "it was 3; expected 4", "50% tests passed", "Test project"):
            self.assertIn(line, said)
        self.assertNotIn("core.first", said)
        self.assertNotIn("core.third", said)

    def test_speaks_while_nothing_ends(self):
        self.assertRegex(shell("sleep 2.5 | progress test")[1], r"test: begun \d s ago")

    def test_nothing_done_is_nothing_said(self):
        self.assertEqual(shell("echo 'ninja: no work to do.' | progress build")[1], "")

    def test_the_exit_status_is_the_builds(self):
        self.assertEqual(shell("{ echo '[1/2] a'; exit 3; } | progress build")[0], 3)

    def test_a_terminal_has_one_moving_line(self):
        ours, theirs = pty.openpty()
        command = f". {SCRIPTS}/common.sh; {{ {NINJA} }} | progress build"
        subprocess.run(["bash", "-c", command], stdout=theirs, check=True)
        os.close(theirs)
        said = b""
        try:
            while piece := os.read(ours, 4096):
                said += piece
        except OSError:  # all that wrote are gone
            pass
        os.close(ours)
        self.assertRegex(said, rb"\r\x1b\[K    build: 4 of 4 in \d s\r\n$")
        self.assertEqual(said.count(b"\n"), 3, said)  # a warning, a failure and the sum


class CudaTest(unittest.TestCase):
    def choice(self, cached="", gpu="exit 9", **environment):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for program, body in (("nvidia-smi", gpu), ("nvcc", ":")):
                (folder / program).write_text(f"#!/bin/sh\n{body}\n")
                (folder / program).chmod(0o755)
            if cached:
                (folder / "CMakeCache.txt").write_text(f"TRIAX_CUDA:STRING={cached}\n")
            environment = {"TRIAX_CUDA": "", **environment, "PATH": f"{folder}:{os.environ['PATH']}"}
            _, choice, said = shell(f"cuda_choice {folder}", **environment)
            return choice.strip(), said

    @unittest.skipIf(list(pathlib.Path("/dev").glob("nvidia[0-9]*")), "there is a GPU")
    def test_not_without_a_gpu(self):
        choice, said = self.choice()
        self.assertEqual(choice, "-DTRIAX_CUDA=OFF")
        self.assertIn("TRIAX_CUDA=ON", said)
        self.assertEqual(len(said.splitlines()), 1)
        self.assertEqual(self.choice("OFF"), (choice, said))

    @unittest.skipIf(list(pathlib.Path("/dev").glob("nvidia[0-9]*")), "there is a GPU")
    def test_what_is_built_with_cuda_stays_so(self):
        self.assertEqual(self.choice("AUTO"), ("", ""))
        self.assertEqual(self.choice("ON"), ("", ""))

    def test_with_a_gpu_or_on_demand(self):
        self.assertEqual(self.choice("OFF", gpu="echo 'GPU 0: stand-in'"), ("-DTRIAX_CUDA=AUTO", ""))
        self.assertEqual(self.choice("OFF", TRIAX_CUDA="ON"), ("-DTRIAX_CUDA=ON", ""))


class TargetsTest(unittest.TestCase):
    def targets(self, name):
        """For a build directory in which test_core was built and test_autograd was not."""
        with tempfile.TemporaryDirectory() as build:
            tests = [("test_autograd_NOT_BUILT", ["test_autograd_NOT_BUILT"]),
                     ("core.Cpu/Old.Works/avx2", [f"{build}/bin/test_core", "--gtest_filter=Cpu/Old.Works/avx2"]),
                     ("core.levels.avx2", ["levels_test.sh", f"{build}/core/CMakeFiles/levels_avx2.dir/copy.cpp.o"]),
                     ("examples.kill", ["/usr/bin/python3", f"{build}/bin/minigpt", "/usr/bin/mpirun"]),
                     ("repository.layering", ["/usr/bin/python3", "check.py"])]
            listed = json.dumps({"tests": [{"name": name, "command": command} for name, command in tests]})
            ctest = pathlib.Path(build) / "ctest"
            ctest.write_text(f"#!/bin/sh\ncat <<'EOF'\n{listed}\nEOF\n")
            ctest.chmod(0o755)
            done = subprocess.run(["python3", SCRIPTS.parent / "tests/targets.py", build, name], capture_output=True,
                                  text=True, env={**os.environ, "PATH": f"{build}:{os.environ['PATH']}"}, timeout=60)
            return done.stdout.split() if done.returncode == 0 else done.stderr

    def test_names_that_ctest_knows(self):
        self.assertEqual(self.targets("Old.Works"), ["test_core"])
        self.assertEqual(self.targets("levels.avx2"), ["levels_avx2"])
        self.assertEqual(self.targets("examples.kill"), ["minigpt"])
        self.assertEqual(self.targets("layering"), [])

    def test_names_in_the_sources(self):
        self.assertEqual(self.targets("^core.Cpu/Accuracy.Exp"), ["test_core"])
        self.assertEqual(self.targets("UnaryGradients"), ["test_autograd"])
        self.assertEqual(self.targets("erf_is_nowhere|unary_id"), ["test_core"], "in no name")

    def test_what_nothing_matches_is_refused(self):
        self.assertIn("no test has nothing_like_it", self.targets("nothing_like_it"))


class OptionsTest(unittest.TestCase):
    def test_an_unknown_option_is_refused_with_the_valid_ones(self):
        for script, valid in (("test", "--quick NAME"), ("setup", "--cuda"), ("fuzz", "--help"), ("faults", "--from"),
                              ("fuzz_parsers", "--seconds"), ("format", "--check"), ("sanitize", "asan, tsan"), ("offline_bundle", "--help"),
                              ("gpu_check", "--only"), ("launch", "--hosts"), ("campaign", "--long")):
            done = subprocess.run([SCRIPTS / f"{script}.sh", "--no-such-option"], capture_output=True, text=True,
                                  timeout=60)
            self.assertNotEqual(done.returncode, 0, script)
            self.assertIn("unknown option --no-such-option", done.stderr, script)
            self.assertIn(valid, done.stderr, script)


if __name__ == "__main__":
    unittest.main()
