"""scripts/offline_bundle.sh and offline_unpack.sh with stand-ins for apt and dpkg."""

import os
import pathlib
import subprocess
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
# A package is a text that names it; unpacked it leaves a file of its name, and Open MPI some more.
DOWNLOAD = 'while [ "$1" != download ]; do shift; done; shift; for n in "$@"; do echo "$n" >"${n}_1_amd64.deb"; done'
UNPACK = """
name=$(cat "$2") && mkdir -p "$3/usr/bin" "$3/usr/lib/some" && touch "$3/usr/$name"
case $name in openmpi-bin) cp "$0" "$3/usr/bin/mpirun.openmpi" ;; libopenmpi3*) touch "$3/usr/lib/some/libmpi.so.40" ;; esac
"""


class OfflineTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "bin").mkdir()
        self.stand_in("apt-get", DOWNLOAD)
        self.stand_in("apt-cache", "exit 0")
        self.stand_in("dpkg", UNPACK)

    def stand_in(self, name, body):
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)

    def shell(self, *command, **more):
        environment = {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", **more}
        return subprocess.run(list(map(str, command)), cwd=self.folder, env=environment, capture_output=True, text=True,
                              timeout=60)

    def bundle(self):
        done = self.shell(SCRIPTS / "offline_bundle.sh", "offline.tar")
        self.assertEqual(done.returncode, 0, done.stderr)
        subprocess.run(["tar", "-xf", "offline.tar"], cwd=self.folder, check=True)
        return sorted(path.name.split("_")[0] for path in (self.folder / "offline/packages").iterdir())

    def test_what_is_packed_is_unpacked_and_found(self):
        names = self.bundle()
        self.assertIn("openmpi-bin", names)
        done = self.shell("bash", "-c", 'eval "$(offline/unpack.sh prefix)" && env && command -v mpirun',
                          LD_LIBRARY_PATH="/mine")
        prefix = f"{self.folder}/prefix"
        for line in (f"OPAL_PREFIX={prefix}/usr", f"LD_LIBRARY_PATH={prefix}/usr/lib/some:{prefix}/lib/some:/mine",
                     f"CMAKE_PREFIX_PATH={prefix}/usr:{prefix}/usr/lib/some"):
            self.assertIn(line, done.stdout.splitlines(), done.stderr)
        self.assertEqual(done.stdout.splitlines()[-1], f"{prefix}/usr/bin/mpirun")
        self.assertEqual(set(names) - set(os.listdir(f"{prefix}/usr")), set())

    def test_another_release_has_other_names(self):
        self.stand_in("apt-cache", 'case $2 in libopenmpi3 | libfmt9) exit 100 ;; esac')
        names = self.bundle()
        self.assertIn("libopenmpi3t64", names)
        self.assertIn("libfmt10", names)

    def test_an_unknown_package_is_named(self):
        self.stand_in("apt-cache", 'case $2 in libmunge2) exit 100 ;; esac')
        done = self.shell(SCRIPTS / "offline_bundle.sh")
        self.assertEqual(done.returncode, 1)
        self.assertIn("apt knows no package libmunge2", done.stderr)

    def test_a_prefix_that_mpicxx_could_not_quote_is_refused(self):
        self.bundle()
        done = self.shell("offline/unpack.sh", "pre fix")
        self.assertEqual((done.returncode, done.stdout), (64, ""))
        self.assertIn("has a space in it", done.stderr)


if __name__ == "__main__":
    unittest.main()
