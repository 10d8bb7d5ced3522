"""scripts/gpu_check.sh without a GPU: the order of its parts, going on, time limits, exit status, table.

Programs, nvidia-smi, mpirun and the Python of the measurements are stand-ins that note that they were called;
a test tells one of them to do otherwise. gpu_table.py is the real one.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECK = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "gpu_check.sh"
FIRST = ["device", "kernels", "speed", "meshes", "ceilings", "loss"]
ONE_GPU = 'case "$*" in -L) echo "GPU 0: stand-in" ;; esac'
TESTS = 'for w in "$@"; do case $w in --gtest_output=json:*) echo "  \\"tests\\": 3," >"${w#*json:}" ;; esac; done'


class GpuCheckTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.calls, self.out, self.build = (self.folder / name for name in ("calls", "out", "build"))
        self.calls.touch()
        for name, body in (("nvidia-smi", ONE_GPU), ("mpirun", ":"), ("compute-sanitizer", ":")):
            self.stand_in(f"bin/{name}", body)
        for name in ("minigpt", "bench_cuda_kernels"):
            self.stand_in(f"build/bin/{name}", ":")
        self.stand_in("build/bin/test_on_gpu", TESTS)
        self.python()

    def stand_in(self, name, body):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/bash\necho "{path.name} $*" >>{self.calls}\n{body}\n')
        path.chmod(0o755)

    def python(self, body=":"):
        """`body` is run for every script but the table's; the first word is the script's name."""
        self.stand_in("bin/python", f'case $1 in *gpu_table.py) exec {sys.executable} "$@" ;; esac\n{body}')

    def check(self, *words):
        command = [CHECK, "--out", self.out, "--build", self.build, "--python", self.folder / "bin/python", *words]
        environment = dict(os.environ, PATH=f"{self.folder / 'bin'}:{os.environ['PATH']}")
        done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, timeout=60)
        self.said = done.stdout + done.stderr
        return done.returncode

    def rows(self):
        """The table that stands last: part -> result; what it says about why is left out."""
        lines = (self.out / "table").read_text().splitlines()[2:]
        return {line.split()[0]: line[10:20].strip() for line in lines}

    def run_parts(self):
        return [line.split()[1][:-1] for line in self.said.splitlines() if line.startswith("==> ") and "at most" in line]

    def called(self, text):
        return [line for line in self.calls.read_text().splitlines() if text in line]

    def test_list_and_help_do_nothing(self):
        self.assertEqual(self.check("--list"), 0)
        limits = [line.split()[1:3] for line in self.said.splitlines()]
        limits = [int(s) for s, when in limits if when == "first"]
        self.assertLess(sum(limits) - max(limits), 590, "twice ten minutes")
        self.assertLess(max(limits), 590)
        self.assertEqual(self.check("--help"), 0)
        self.assertIn("--only A,B", self.said)
        self.assertFalse(self.out.exists())

    def test_the_most_valuable_parts_run_first_and_the_table_names_all(self):
        self.assertEqual(self.check(), 0, self.said)
        self.assertEqual(self.run_parts(), FIRST)
        rows = self.rows()
        self.assertEqual([name for name in rows if rows[name] == "ok"], FIRST)
        self.assertEqual(list(rows)[len(FIRST):], ["sanitize", "large", "batches", "nccl", "multi", "peers"])
        self.assertEqual(set(list(rows.values())[len(FIRST):]), {"not shown"})
        self.assertIn("scripts/gpu_check.sh --only sanitize", self.said)
        self.assertTrue(self.called("gpu_meshes.py") and self.called("compare_gpu.py"))
        results = json.loads((self.out / "results.json").read_text())
        self.assertEqual(results["parts"]["speed"]["result"], "ok")
        self.assertIn("| speed | ok |", (self.out / "gpu.md").read_text())

    def test_what_passed_is_not_run_again_unless_it_is_named(self):
        self.python('case $1 in *compare_loss.py) exit 1 ;; esac')
        self.assertEqual(self.check(), 1)
        self.assertEqual(self.rows()["loss"], "failed")
        self.python()
        self.assertEqual(self.check(), 0, self.said)
        self.assertEqual(self.run_parts(), ["loss"])
        self.assertEqual(self.check("--only", "speed,kernels"), 0, self.said)
        self.assertEqual(self.run_parts(), ["kernels", "speed"], "in the order of their value")
        self.assertEqual(self.rows()["loss"], "ok", "what passed before stays in the table")

    def test_two_calls_of_ten_minutes_run_all_however_long_the_parts_take(self):
        self.assertEqual(self.check("--within", "589"), 0, self.said)
        self.assertEqual(self.run_parts(), FIRST, "none took as long as it might")
        self.assertEqual(self.check("--within", "300", "--all", "--limit", "200", "--out", self.folder / "x"), 0)
        self.assertNotIn("not begun", self.said)
        self.assertEqual(self.check("--within", "120", "--out", self.folder / "y"), 0, self.said)
        self.assertEqual(self.run_parts(), ["device", "ceilings", "loss"])
        self.assertIn("not begun, for they may not end within 120 s: kernels speed meshes; the same command goes on", self.said)

    def test_what_is_cut_off_leaves_the_table_of_what_has_ended(self):
        self.stand_in("build/bin/test_on_gpu", f"cp {self.out}/table {self.out}/gpu.md {self.folder}")
        self.check("--only", "device,kernels")
        self.assertRegex((self.folder / "table").read_text(), "device +ok")
        self.assertIn("| device | ok |", (self.folder / "gpu.md").read_text())

    def test_a_failed_part_does_not_stop_the_others(self):
        self.stand_in("build/bin/test_on_gpu", "echo wrong bits; exit 1")
        self.assertEqual(self.check("--skip", "speed"), 1)
        rows = self.rows()
        self.assertEqual((rows["kernels"], rows["loss"], rows["speed"]), ("failed", "ok", "not shown"))
        self.assertIn("wrong bits", self.said)

    def test_no_tests_are_no_passed_tests(self):
        self.stand_in("build/bin/test_on_gpu", TESTS.replace("3", "0"))
        self.assertEqual(self.check("--only", "kernels"), 1)
        self.assertIn("no test was run", self.said)

    def test_a_part_that_hangs_is_ended_with_all_it_started(self):
        self.stand_in("build/bin/test_on_gpu", f"sleep 300 & echo $! >{self.folder}/pid; wait")
        self.assertEqual(self.check("--only", "kernels,loss", "--limit", "1"), 1)
        self.assertEqual(self.rows()["kernels"], "timed out")
        self.assertEqual(self.rows()["loss"], "ok")
        pid = (self.folder / "pid").read_text().strip()
        state = pathlib.Path(f"/proc/{pid}/stat")
        self.assertTrue(not state.exists() or state.read_text().split()[2] == "Z")

    def test_what_this_machine_cannot_show_is_said_and_is_no_failure(self):
        (self.build / "bin/test_on_gpu").unlink()
        self.assertEqual(self.check("--only", "kernels,nccl,peers"), 0, self.said)
        rows = self.rows()
        self.assertEqual({rows[name] for name in ("kernels", "nccl", "peers")}, {"not shown"})
        self.assertIn("--target test_on_gpu", self.said)
        self.assertIn("GPUs needed: 2, there are 1", self.said)
        self.assertFalse(self.called("gpu_meshes.py"))

    def test_without_pytorch_triax_is_measured_alone(self):
        self.python('[ "$1" != -c ] || exit 1')
        self.assertEqual(self.check("--only", "speed,loss"), 0, self.said)
        self.assertEqual(self.rows()["speed"], "not shown")
        self.assertTrue(self.called("compare_gpu.py")[0].endswith("--without-pytorch"))
        self.assertFalse(self.called("compare_loss.py"))

    def test_two_gpus_show_nccl(self):
        self.stand_in("bin/nvidia-smi", 'printf "GPU 0\\nGPU 1\\n"')
        self.assertEqual(self.check("--only", "nccl"), 0, self.said)
        self.assertTrue(self.called("gpu_meshes.py")[0].endswith("cuda nccl 2"))

    def test_a_machine_without_a_gpu_fails(self):
        self.stand_in("bin/nvidia-smi", "echo no driver >&2; exit 9")
        self.assertEqual(self.check("--only", "device"), 1)
        self.assertIn("no driver", self.said)

    def test_bad_words_are_refused(self):
        for words in (["--only", "speeds"], ["--skip", "x"], ["--limit", "soon"], ["--out"], ["--bundle", "none"], ["x"]):
            self.assertEqual(self.check(*words), 1, words)
            self.assertIn("error: gpu_check: ", self.said)

    def test_a_bundle_is_unpacked_and_used(self):
        bundle = self.folder / "offline"
        bundle.mkdir()
        unpack = bundle / "unpack.sh"
        unpack.write_text('#!/bin/sh\necho "export OPAL_PREFIX=$1/usr LD_LIBRARY_PATH=$1/lib:$LD_LIBRARY_PATH"\n')
        unpack.chmod(0o755)
        subprocess.run(["tar", "-C", self.folder, "-cf", self.folder / "offline.tar", "offline"], check=True)
        self.python(f'echo "$OPAL_PREFIX, $LD_LIBRARY_PATH, $*" >>{self.folder}/prefix')
        self.assertEqual(self.check("--only", "speed", "--bundle", self.folder / "offline.tar"), 0, self.said)
        prefix = f"{self.out}/bundle/prefix"
        said = (self.folder / "prefix").read_text()
        self.assertIn(f"{prefix}/usr, {os.environ.get('LD_LIBRARY_PATH', '')},", said, "not for PyTorch")
        self.assertIn(f"--libraries {prefix}/lib", said, "but for minigpt")


if __name__ == "__main__":
    unittest.main()
