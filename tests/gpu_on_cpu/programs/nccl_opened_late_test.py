"""nccl_opened_late_test.py PROGRAM CC: a program starts where NCCL is missing or too old: it is not linked, and one that
lacks functions is not bound when the program starts. PROGRAM was built with NCCL, CC compiles C."""

import os
import pathlib
import subprocess
import sys
import tempfile

program, compiler = sys.argv[1], sys.argv[2]

with tempfile.TemporaryDirectory() as folder:
    old = pathlib.Path(folder) / "libnccl.so.2"
    source = "int ncclGetVersion(int* version) { *version = 21805; return 0; }"
    subprocess.run([compiler, "-shared", "-fPIC", "-Wl,-soname,libnccl.so.2", "-x", "c", "-", "-o", old],
                   input=source, text=True, check=True)
    needed = subprocess.run(["readelf", "-d", program], capture_output=True, text=True, check=True).stdout
    started = subprocess.run([program, "--help"], capture_output=True, text=True,
                             env=os.environ | {"LD_LIBRARY_PATH": folder, "LD_BIND_NOW": "1"})
print(started.returncode, started.stderr, [line for line in needed.splitlines() if "nccl" in line])
sys.exit("libnccl" in needed or started.returncode != 0)
