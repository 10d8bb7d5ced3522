"""What the batch scripts of examples/slurm ask of srun and launch.sh, which are stand-ins, as scontrol is.

The scripts run as sbatch runs them: from a copy elsewhere, in the directory of the submission. With a real
Slurm: tests/slurm.
"""

import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "examples" / "slurm"
STARTS = dict(one_node="triax-launch", several_nodes="srun")


class SlurmScriptsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name in "spool", "submit", "bin":
            (self.folder / name).mkdir()
        self.stand_in("bin/srun")
        self.stand_in("bin/scontrol")

    def stand_in(self, name, code=0):
        """Notes its words, the limit on memory locks and what NCCL is told."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/bash\necho "$0 $*" >>{self.folder}/words\n'
                        f'echo "$(ulimit -l) ${{NCCL_DEBUG:-}}" >{self.folder}/seen\nexit {code}\n')
        path.chmod(0o755)

    def run_script(self, name, **environment):
        """Exit code; the calls of stand-ins, one a line."""
        (self.folder / "words").unlink(missing_ok=True)
        copy = shutil.copy(SCRIPTS / f"{name}.sh", self.folder / "spool" / "slurm_script")
        clean = dict(PATH=f"{self.folder}/bin:/usr/bin:/bin", SLURM_JOB_ID="7", SLURM_NTASKS="16",
                     SLURM_CPUS_PER_TASK="12")
        done = subprocess.run([copy, "--out", "my run"], env=clean | environment, cwd=self.folder / "submit",
                              capture_output=True, text=True, timeout=30)
        return done.returncode, (self.folder / "words").read_text().replace(f"{self.folder}/", "").splitlines()

    def test_programs_are_those_of_the_build_tree(self):
        self.stand_in("submit/scripts/launch.sh")
        for name in STARTS:
            for script in name, f"{name}_gpus":
                code, calls = self.run_script(script)
                self.assertEqual((code, len(calls)), (0, 1))
                self.assertRegex(calls[0], "^(bin/srun|scripts/launch.sh) .* build/release/bin/minigpt train ")

    def test_programs_are_those_installed(self):
        self.stand_in("bin/triax-launch")
        self.stand_in("bin/minigpt")
        for name, starts in STARTS.items():
            for script in name, f"{name}_gpus":
                code, calls = self.run_script(script)
                self.assertEqual((code, len(calls)), (0, 1))
                self.assertRegex(calls[0], f"^bin/{starts} .* bin/minigpt train .*--resume auto --out my run$")
                self.assertIn(" other train ", self.run_script(script, PROGRAM="other")[1][0])

    def test_gpus_are_used(self):
        self.stand_in("bin/triax-launch")
        for name in STARTS:
            calls = self.run_script(f"{name}_gpus", NCCL_DEBUG="INFO")[1]
            self.assertIn(" train --device cuda --comm nccl --resume auto ", calls[0])
            highest = subprocess.run(["bash", "-c", "ulimit -l unlimited; ulimit -l"], capture_output=True, text=True)
            self.assertEqual((self.folder / "seen").read_text().split(), [highest.stdout.strip(), "INFO"])
            self.assertNotIn("cuda", self.run_script(name)[1][0])
            asked = re.findall("^#SBATCH (.*)$", (SCRIPTS / f"{name}_gpus.sh").read_text(), re.M)
            for option in ("--gpus-per-node=8", "--ntasks-per-node=8", "--cpus-per-task=12", "--gpu-bind=none",
                           "--exclusive", "--requeue"):
                self.assertIn(option, asked)

    def test_a_job_that_was_stopped_has_backward_extras(self):
        for name, starts in STARTS.items():
            for script in name, f"{name}_gpus":
                self.stand_in(f"bin/{starts}", 75)
                self.assertEqual(self.run_script(script)[1][1:], ["bin/scontrol requeue 7"], script)
                self.stand_in(f"bin/{starts}", 65)
                code, calls = self.run_script(script)
                self.assertEqual((code, len(calls)), (65, 1), script)


if __name__ == "__main__":
    unittest.main()
