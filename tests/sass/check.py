#!/usr/bin/env python3
"""check.py TABLE OBJECT...: the machine code of the kernels that TABLE names, in objects NAME.cu.o.

A kernel may compute the right thing and still read 2 bytes at a time, divide by calling a
subroutine or keep an array in local memory: no test on a CPU sees that, only the instructions do.
TABLE says what is asked of each. Needs cuobjdump and nvdisasm: in PATH, beside nvcc, in Python's
packages (nvidia-cuda-cuobjdump, nvidia-cuda-nvdisasm), or where scripts/setup.sh --dev puts these.
Exit status: 0, 1 if a demand is not met, 77 if the programs or code for ARCH are absent. Without
arguments: whether the programs are there.
"""

import collections
import concurrent.futures
import fnmatch
import glob
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
ARCH = "sm_90a"
SKIPPED = 77
COLUMNS = ("loads", "stores", "narrow", "calls", "registers")
Demand = collections.namedtuple("Demand", ("file", "kernel") + COLUMNS)
Kernel = collections.namedtuple("Kernel", "registers local body")
# A loop, or all instructions of a kernel without one: what it counts.
Count = collections.namedtuple("Count", ("where",) + COLUMNS[:4] + ("halves",))

INSTRUCTION = re.compile(r"\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9_.]+)(.*);")
LABEL = re.compile(r"(\.L_x_\d+):")
TARGET = re.compile(r"\((\.L_x_\d+)\)")


def read_table(path):
    """A line of the table for `T` is one for bf16 and one for f32."""
    demands = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        words = line.split("#")[0].rsplit(maxsplit=len(COLUMNS))
        if not words:
            continue
        head = words[0].split(maxsplit=1)
        if len(words) != 1 + len(COLUMNS) or len(head) != 2:
            sys.exit(f"{path}:{number}: {line}\n  expected: file, kernel, {', '.join(COLUMNS)}")
        file, kernel = head
        types = ("bf16", "f32") if re.search(r"\bT\b", kernel) else ("",)
        demands += [Demand(file, re.sub(r"\bT\b", t, kernel), *map(int, words[1:])) for t in types]
    return demands


def tools():
    """cuobjdump and nvdisasm, from the same place."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    places = os.environ["PATH"].split(":") + [os.path.dirname(os.path.realpath(nvcc))]
    for package in [p for p in sys.path if p] + [ROOT / "build/tools"]:
        places += glob.glob(f"{package}/nvidia/*/bin")
    for place in places:
        found = [f"{place}/{name}" for name in ("cuobjdump", "nvdisasm")]
        if all(os.access(path, os.X_OK) for path in found):
            return found
    return None


def run(*command, **how):
    done = subprocess.run(command, capture_output=True, text=True, **how)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


def short_names(mangled):
    """Kernels as the sources write them, with bf16, f32 and f16 for the dtypes."""
    for name in run("c++filt", input="\n".join(mangled)).splitlines():
        name = re.sub(r"^void .*?\bentry<(.*)>\(.*$", r"\1", name)
        name = re.sub(r"\btriax::(cuda::device::|functors::)?", "", name)
        for long, brief in (("BFloat16", "bf16"), ("Half", "f16"), ("float", "f32")):
            name = re.sub(rf"\b{long}\b", brief, name)
        yield name.replace("> >", ">>").replace("> >", ">>").strip()


def kernels_of(source, cuobjdump, nvdisasm):
    """{short name: Kernel} of an object file; empty if it holds no code for ARCH."""
    source = os.path.abspath(source)
    usage = run(cuobjdump, "-res-usage", "-arch", ARCH, source)
    used = re.findall(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) .*?LOCAL:(\d+)", usage)
    if not used:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        run(cuobjdump, "-xelf", ARCH, source, cwd=folder)
        text = run(nvdisasm, "-c", "-ndf", *glob.glob(f"{folder}/*.cubin"))
    sections = text.split("\n.text.")[1:]
    bodies = {body.split(":", 1)[0]: body for body in sections}
    return {short: Kernel(int(registers), int(stack) + int(local), bodies[name])
            for short, (name, registers, stack, local)
            in zip(short_names([u[0] for u in used]), used) if name in bodies}


def count(where, instructions):
    found = collections.Counter()
    for opcode in instructions:
        name, *modifiers = opcode.split(".")
        if name in ("LDG", "STG"):
            wide = "128" in modifiers
            found["wide " + name if wide else "narrow"] += 1
            found["halves"] += any(re.fullmatch(r"[US]?(8|16)", m) for m in modifiers)
        found["calls"] += name == "CALL"
    return Count(where, found["wide LDG"], found["wide STG"], found["narrow"], found["calls"],
                 found["halves"])


def main_loop(body):
    """What the loop with the most 16-byte accesses holds: where there is none, the whole kernel.

    A loop is what a branch jumps back over. Of two with as many accesses the shorter one counts.
    """
    labels, code, branches = {}, [], []
    for line in body.splitlines():
        label, instruction = LABEL.match(line), INSTRUCTION.match(line)
        if label:
            labels[label[1]] = len(code)
        elif instruction:
            target = TARGET.search(instruction[3])
            if instruction[2].startswith("BRA") and target:
                branches.append((len(code), target[1]))
            code.append(instruction[2])
    loops = [(labels[to], at) for at, to in branches if labels.get(to, at + 1) <= at]
    counts = [count("its main loop", code[begin:end + 1])
              for begin, end in sorted(loops, key=lambda loop: loop[1] - loop[0])]
    best = max(counts, key=lambda c: c.loads + c.stores, default=None)
    return best if best and best.loads + best.stores else count("it", code)


def complaints(demand, kernel):
    """What `kernel` lacks of `demand`, as sentences."""
    found = main_loop(kernel.body)
    for what in ("loads", "stores"):
        if getattr(found, what) < getattr(demand, what):
            yield (f"{found.where} has {getattr(found, what)} 16-byte {what}; expected at least "
                   f"{getattr(demand, what)}")
    if found.halves:
        yield f"{found.where} has {found.halves} accesses of 1 or 2 bytes; expected none"
    if found.narrow > demand.narrow:
        yield (f"{found.where} has {found.narrow} accesses narrower than 16 bytes; expected at most "
               f"{demand.narrow}")
    if found.calls > demand.calls:
        yield f"{found.where} has {found.calls} calls; expected at most {demand.calls}"
    if kernel.registers > demand.registers:
        yield f"it takes {kernel.registers} registers; expected at most {demand.registers}"
    if kernel.local:
        yield f"it keeps {kernel.local} bytes in local memory; expected none"


def main():
    programs = tools()
    if not programs:
        print("skipped: no cuobjdump and nvdisasm; scripts/setup.sh --dev installs them")
        return SKIPPED
    if len(sys.argv) < 3:
        return 0
    table = pathlib.Path(sys.argv[1])
    demands = read_table(table)
    objects = {pathlib.Path(path).name.removesuffix(".cu.o"): path for path in sys.argv[2:]}
    files = sorted({d.file for d in demands})
    with concurrent.futures.ThreadPoolExecutor() as threads:
        code = dict(zip(files, threads.map(lambda f: kernels_of(objects[f], *programs), files)))
    if not any(code.values()):
        print(f"skipped: nothing was compiled for {ARCH}")
        return SKIPPED
    failures = []
    for demand in demands:
        names = fnmatch.filter(code[demand.file], demand.kernel)
        if not names:
            failures.append(f"{demand.file}.cu: no kernel {demand.kernel}; did its name change?")
        failures += [f"{demand.file}.cu: {name}: {text}" for name in names
                     for text in complaints(demand, code[demand.file][name])]
    print(*failures, sep="\n", end="\n" if failures else "")
    print(f"{len(failures)} of the demands of {table.name} are not met" if failures else
          f"{len(demands)} demands on machine code are met")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
