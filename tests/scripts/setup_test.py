"""scripts/setup.sh on machines that lack things, are not root or are of an unknown kind.

The machine is a folder of stand-ins as the only PATH: apt-get, sudo and id write down how they were
called, and the compiler knows which headers are missing. Nothing is installed.
"""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SETUP = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "setup.sh"
TOOLS = ["bash", "dirname", "sed", "env", "mktemp", "rm", "tail"]
PROGRAMS = ["cmake", "ninja", "git", "python3", "ccache", "mpicxx", "mpirun"]


class Machine:
    def __init__(self, folder, uid=0, sudo=True, os_release="ID=debian\n", apt=":"):
        self.bin = pathlib.Path(folder) / "bin"
        self.bin.mkdir()
        self.calls = pathlib.Path(folder) / "calls"
        self.calls.touch()
        self.docs = pathlib.Path(folder) / "doc"
        self.text = self.docs / "jargon-text/jargon.txt.gz"
        self.text.parent.mkdir(parents=True)
        self.text.touch()
        self.os_release = pathlib.Path(folder) / "os-release"
        self.os_release.write_text(os_release)
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool))
        for program in PROGRAMS:
            self.stand_in(program, "exit 0")
        # g++ -x c++ -E -include HEADER /dev/null: fails for the headers in the file `missing`.
        self.missing = pathlib.Path(folder) / "missing"
        self.missing.touch()
        self.stand_in("g++", f'while read -r h; do [ "$h" != "$5" ] || exit 1; done <{self.missing}')
        self.stand_in("id", f"echo {uid}")
        # What is installed is there afterwards.
        self.stand_in("apt-get", f'echo "apt-get $*" >>{self.calls}\n{apt}\n'
                                 f'case "$*" in *install*) : >{self.missing} ;; esac')
        if sudo:
            self.stand_in("sudo", f'echo "sudo $*" >>{self.calls}\n"$@"')

    def stand_in(self, name, body):
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def setup(self, *options):
        env = {"PATH": str(self.bin), "OS_RELEASE": str(self.os_release), "DOCS": str(self.docs),
               "CUDA_HOME": str(self.bin / "no-toolkit")}
        result = subprocess.run([SETUP, *options], env=env, capture_output=True, text=True, cwd="/")
        return result.returncode, result.stdout + result.stderr, self.calls.read_text().splitlines()


class SetupTest(unittest.TestCase):
    def machine(self, missing=(), **how):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        machine = Machine(folder.name, **how)
        machine.missing.write_text("".join(f"{header}\n" for header in missing))
        return machine

    def expect(self, machine, code, *parts, options=(), calls=None):
        """Exit code, parts of what it says, and what it called, which is returned."""
        status, said, made = machine.setup(*options)
        self.assertEqual(status, code, said)
        for part in parts:
            self.assertIn(part, said)
        self.assertEqual(made if calls is None else calls, made, said)
        return made

    def test_does_nothing_when_everything_is_there(self):
        self.expect(self.machine(), 0, calls=[])
        self.expect(self.machine(os_release="ID=arch\n"), 0)  # not even where it could not

    def test_installs_what_is_missing_and_nothing_else(self):
        machine = self.machine(["fmt/format.h", "gtest/gtest.h", "pcre2posix.h"])
        calls = ["apt-get -q update", "apt-get -q -y --no-install-recommends install libfmt-dev libpcre2-dev libgtest-dev"]
        self.expect(machine, 0, "installing libfmt-dev libpcre2-dev libgtest-dev", calls=calls)
        self.expect(machine, 0, calls=calls)  # the second time: nothing
        self.expect(self.machine(["fmt/format.h"], os_release='ID=linuxmint\nID_LIKE="ubuntu debian"\n'), 0)

    def test_asks_for_everything_without_a_compiler(self):
        machine = self.machine(apt="exit 1")
        (machine.bin / "g++").unlink()
        self.assertIn("installing g++ libfmt-dev", machine.setup()[1])

    def test_uses_sudo_when_not_root(self):
        calls = self.expect(self.machine(["fmt/format.h"], uid=1000), 0)
        self.assertEqual(calls[0], "sudo env DEBIAN_FRONTEND=noninteractive apt-get -q update")

    def test_says_what_to_do_where_it_cannot_install(self):
        self.expect(self.machine(["fmt/format.h"], uid=1000, sudo=False), 1,
                    "apt-get -q -y --no-install-recommends install libfmt-dev", calls=[])
        self.expect(self.machine(["fmt/format.h"], os_release="ID=arch\n"), 1, "this is arch", "libfmt-dev", calls=[])
        self.expect(self.machine(["fmt/format.h"], apt="echo E: no network; exit 100"), 1, "E: no network")
        self.expect(self.machine(["fmt/format.h"]), 1, "missing: libfmt-dev", options=["--check"], calls=[])

    def cuda_machine(self, missing=(), known="exit 0", nvcc="13.0"):
        machine = self.machine(missing)
        machine.stand_in("apt-cache", known)
        if nvcc:
            machine.stand_in("nvcc", f"echo Cuda compilation tools, release {nvcc}, V{nvcc}.88")
        return machine

    def test_cuda_names_what_is_missing(self):
        self.expect(self.cuda_machine(), 0, options=["--cuda", "--check"], calls=[])
        machine = self.cuda_machine(["cudnn.h", "nccl.h"])
        self.expect(machine, 1, "missing: libcudnn9-dev-cuda-13 libnccl-dev", options=["--cuda", "--check"], calls=[])
        self.expect(machine, 0, options=["--check"])  # not asked for

    def test_cuda_fits_the_compiler_that_is_there(self):
        machine = self.cuda_machine(["cublasLt.h", "cudnn.h"], nvcc="12.8")
        self.assertIn("install libcublas-dev-12-8 libcudnn9-dev-cuda-12", machine.setup("--cuda")[2][-1])

    def test_cuda_without_nvidias_repository_installs_nothing(self):
        self.expect(self.cuda_machine(["nccl.h", "fmt/format.h"], known="exit 1"), 1,
                    "apt knows no libnccl-dev; NVIDIA's repository is not configured", "Missing: libfmt-dev libnccl-dev",
                    options=["--cuda"], calls=["apt-get -q update"])

    def test_dev_brings_the_disassembler_where_nvcc_is(self):
        for installs, fails in ("exit 0", False), ("exit 1", True):
            machine = self.cuda_machine()
            for program in "clang-format-14", "shellcheck":
                machine.stand_in(program, "exit 0")
            machine.stand_in("python3", f'case "$*" in *pip*) echo "$*" >>{machine.calls}; {installs} ;; '
                                        '*sass*) exit 77 ;; esac')
            status, said, calls = machine.setup("--dev")
            self.assertEqual((status, len(calls)), (0, 1), said)
            self.assertIn("--target build/tools nvidia-cuda-cuobjdump==13.* nvidia-cuda-nvdisasm", calls[0])
            self.assertEqual("going on without it" in said, fails)
            self.assertEqual(machine.setup("--dev", "--check")[2], calls)
            (machine.bin / "nvcc").unlink()
            self.assertEqual(machine.setup("--dev")[2], calls)

    def textless(self, known="exit 0", **how):
        machine = self.machine(**how)
        machine.text.unlink()
        machine.stand_in("apt-cache", known)
        return machine

    def test_installs_the_text_also_where_documentation_is_left_out(self):
        self.expect(self.textless(), 0, calls=["apt-get -q -y --reinstall install jargon-text "
                                               "-o Dpkg::Options::=--path-include=/usr/share/doc/jargon-text/*"])
        calls = self.expect(self.textless(missing=["fmt/format.h"]), 0)
        self.assertIn("install libfmt-dev", calls[1])
        self.assertIn("jargon-text", calls[2])

    def test_goes_on_without_the_text(self):
        self.assertEqual(len(self.expect(self.textless(apt="exit 100"), 0, "going on without it")), 1)
        self.expect(self.textless(known="exit 100"), 0, calls=[])
        self.expect(self.textless(), 0, options=["--check"], calls=[])

    def test_asks_no_password_for_the_text(self):
        self.assertIn("sudo -n env", self.textless(uid=1000).setup()[2][0])
        self.expect(self.textless(uid=1000, sudo=False), 0, calls=[])

    def test_dev_adds_the_checkers(self):
        _, said, calls = self.machine().setup("--dev")
        self.assertIn("install clang-format-14 shellcheck", calls[-1], said)


if __name__ == "__main__":
    unittest.main()
