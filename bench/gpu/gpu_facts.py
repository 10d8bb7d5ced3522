#!/usr/bin/env python3
"""The GPU, its driver, and the libraries that a program is linked to, printed and as JSON.

    python3 bench/gpu/gpu_facts.py build/release/bin/minigpt device.json
"""

import ctypes
import json
import subprocess
import sys
import time
from pathlib import Path

from gpu_watch import query

FIELDS = ("name", "driver_version", "compute_cap", "memory.total", "power.limit", "clocks.max.sm")
FIELDS += ("clocks.max.mem", "clocks.sm", "clocks.mem", "temperature.gpu", "mig.mode.current")
# Of each library: the beginning of its name, and the function that says its version.
LIBRARIES = {
    "cudart": "cudaRuntimeGetVersion",
    "cublasLt": "cublasLtGetVersion",
    "cudnn": "cudnnGetVersion",
    "nccl": "ncclGetVersion",
}
BY_POINTER = ("cudart", "nccl")  # the others return it


def linked(program: str) -> dict[str, str]:
    """Paths of LIBRARIES that the loader finds for the program."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
    found = {}
    for line in listed.splitlines():
        words = line.split()
        for name in LIBRARIES:
            if words and words[0].startswith(f"lib{name}.so") and len(words) > 2:
                found[name] = words[2]
    return found


def version(name: str, path: str) -> int:
    """As the library packs it: 13000 is 13.0 of CUDA, 91900 is 9.19.0 of cuDNN."""
    function = getattr(ctypes.CDLL(path), LIBRARIES[name])
    if name in BY_POINTER:
        number = ctypes.c_int(0)
        function(ctypes.byref(number))
        return number.value
    function.restype = ctypes.c_size_t
    return function()


def main(program: str, out: str) -> None:
    facts = dict(zip(FIELDS, query(FIELDS, 0)))
    for name, path in linked(program).items():
        try:
            facts[name] = f"{version(name, path)}, {path}"
        except (OSError, AttributeError) as error:
            facts[name] = f"{path}: {error}"
    facts["date"] = time.strftime("%Y-%m-%d")
    for name, value in facts.items():
        print(f"  {name}: {value}")
    Path(out).write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except RuntimeError as error:
        sys.exit(f"gpu_facts: {error}")
