"""The rules of the house that a search can check: who includes what, sizes, macros, names of classes.

check.py REPOSITORY: prints every violation with file, line and cure; exit status 1 if there is any.
"""

import pathlib
import re
import sys

from definitions import check_definitions
from size import check_sizes

# Each folder includes itself and what stands left of it. Tests and benchmarks include anything.
FOLDERS = ["core", "autograd", "nn", "optim", "parallel", "examples"]
FREE = ["tests", "bench"]
NAMED = "triax/"  # how includes of the libraries begin, so that a user's own core/ is another
LIBRARIES = FOLDERS[:-1]
USERS = "tests/package"  # a user's project, which has a core/ of its own

# Within a folder: each line of names includes itself and the lines above it; names on one line do
# not include each other. A name covers its folder, or its files: `parallel/mesh` is mesh.h too.
# What is in the folder and has no name belongs to the line that is written as the folder.
INSIDE = {
    "core": [
        ["core/numbers", "core/functors/list"],
        ["core"],
        ["core/io", "core/functors", "core/shared"],
        ["core/interop"],
        ["core/cpu", "core/cuda", "core/meta"],
        ["core/backend.cpp"],
    ],
    "core/cpu": [
        ["core/cpu"],
        ["core/cpu/products", "core/cpu/rows", "core/cpu/images"],
        ["core/cpu/attention"],
    ],
    "core/cuda": [
        ["core/cuda/runtime"],
        ["core/cuda/libraries"],
        ["core/cuda"],
        ["core/cuda/kernels"],
    ],
    "core/cuda/kernels": [
        ["core/cuda/kernels"],
        ["core/cuda/kernels/rows", "core/cuda/kernels/attention"],
    ],
    "parallel/comm": [
        ["parallel/comm"],
        ["parallel/comm/threads", "parallel/comm/processes", "parallel/comm/gpu"],
        ["parallel/comm/launch"],
    ],
    "parallel/data": [
        ["parallel/data/buckets"],
        ["parallel/data"],
    ],
    "parallel/train": [
        ["parallel/train/options"],
        ["parallel/train/model"],
        ["parallel/train/step"],
        ["parallel/train/runs"],
        ["parallel/train"],
        ["parallel/train/watch"],
    ],
    "parallel": [
        ["parallel/comm"],
        ["parallel/mesh"],
        ["parallel/tensor", "parallel/context", "parallel/data", "parallel/pipeline",
         "parallel/checkpoint", "parallel/settings"],
        ["parallel/experts"],
        ["parallel/train"],
        ["parallel/plan", "parallel/parity"],
        ["parallel/simulation"],
        ["parallel/program"],
    ],
}

# Headers with an owner: pattern of the included name -> patterns of the files that may include it.
OWNED = {
    r"core/cuda/.*": [r"core/cuda/.*", r"core/backend\.cpp", r"parallel/comm/gpu/nccl_\w+\..*",
                       r"tests/.*", r"bench/.*"],
    r"core/cpu/.*": [r"core/cpu/.*", r"core/backend\.cpp", r"tests/.*", r"bench/.*"],
    r"mpi\.h": [r"parallel/comm/processes/mpi_.*", r"parallel/comm/launch/session\.cpp", r"tests/.*",
                 r"bench/.*"],
    r"cudnn\.h": [r"core/cuda/libraries/cudnn.*", r"tests/cudnn/.*"],
    r"cublasLt\.h": [r"core/cuda/libraries/.*", r"tests/gpu_on_cpu/.*", r"tests/cudnn/.*"],
    r"nccl\.h": [r"parallel/comm/gpu/nccl_\w+\..*", r"tests/gpu_on_cpu/.*"],
    r"cuda_runtime\.h": [r"core/cuda/.*", r"parallel/comm/gpu/nccl_\w+\..*",
                          r"tests/gpu_on_cpu/.*", r"bench/.*"],
}

# The one macro that writes code, and names that other people's headers look for.
MACROS = ["TRIAX_HD", "OMPI_SKIP_MPICXX", "_GNU_SOURCE"]

# What differs between builds is known in these files alone.
SWITCHES = {"TRIAX_CUDA": [r"core/backend\.cpp"]}

MAX_LINES = 500

# What a newcomer reads, in this order.
READING = [
    "README.md",
    "examples/linear_regression.cpp",
    "core/tensor.h",
    "autograd/ops/softmax.cpp",
    "autograd/record.h",
    "autograd/engine.cpp",
    "nn/module.h",
    "nn/sequence.h",
    "parallel/comm/communicator.h",
    "parallel/tensor/linear.h",
    "parallel/data/data_parallel.h",
    "parallel/data/data_parallel.cpp",
    "parallel/data/buckets/gradient_sums.cpp",
    "parallel/pipeline/pipeline.cpp",
    "parallel/train/step/replica.cpp",
    "parallel/train/step/step.h",
    "parallel/train/step/step.cpp",
    "parallel/train/trainer.h",
    "parallel/train/trainer.cpp",
    "examples/mesh_mlp.cpp",
]
MAX_READING = 2500
APART = "examples/research"  # a project of its own: its headers are beside its sources

SOURCES = (".h", ".cpp", ".cu", ".cuh")
INCLUDE = re.compile(r'^\s*#\s*include\s*(<[^>]*>|"[^"]*")')
DEFINE = re.compile(r"^\s*#\s*define\s+(\w+)(\(?)")


def matches(name, patterns):
    return any(re.fullmatch(pattern, name) for pattern in patterns)


def within(file, name):
    return file == name or file.startswith((name + "/", name + "."))


def place(file, lines):
    """(line, name) of the longest name that covers the file; None if there is none."""
    found = [(len(name), line, name)
             for line, names in enumerate(lines) for name in names if within(file, name)]
    return max(found)[1:] if found else None


def check_order(file, name):
    """Why may `file` not include `name`, which is in the same folder of INSIDE? None if it may."""
    for folder, lines in INSIDE.items():
        if not (within(file, folder) and within(name, folder)):
            continue
        here, there = place(file, lines), place(name, lines)
        if not here or not there:
            unknown = name if here else file
            return f"{unknown} has no place in INSIDE of check.py"
        if there[0] > here[0] or (there[0] == here[0] and there[1] != here[1]):
            order = " <- ".join("{" + ", ".join(names) + "}" if names[1:] else names[0]
                                for names in lines)
            return f"{here[1]} may not include {there[1]}: {order}"
    return None


def check_include(file, name, quoted, exists):
    """Why may `file` not include `name`? None if it may."""
    folder, target = file.split("/")[0], name.split("/")[0]
    if quoted and not exists:
        return f'there is no {name}; includes start at the repository, like "{NAMED}core/tensor.h"'
    if folder in FOLDERS and target in FOLDERS + FREE:
        if target in FREE:
            return f"{folder} includes {target}; nothing but tests and bench may"
        if FOLDERS.index(target) > FOLDERS.index(folder):
            return f"{folder} stands left of {target} in {' <- '.join(FOLDERS)}"
    if wrong := check_order(file, name):
        return wrong
    for owned, owners in OWNED.items():
        if re.fullmatch(owned, name) and not matches(file, owners):
            return f"{name} belongs to {' '.join(owners)}"
    return None


def check_line(root, file, line):
    """All that is wrong with one line of source."""
    if include := INCLUDE.match(line):
        quoted, written = include[1][0] == '"', include[1][1:-1]
        name = written.removeprefix(NAMED)
        if not within(file, USERS) and (name != written) != (name.split("/")[0] in LIBRARIES):
            yield f"include: {written}; headers of {', '.join(LIBRARIES)}, and no others, begin with {NAMED}"
        base = root / APART if within(file, APART) and "/" not in name else root
        if wrong := check_include(file, name, quoted, (base / name).is_file()):
            yield f"include: {wrong}"
    if define := DEFINE.match(line):
        if define[2]:
            yield f"macro: {define[1]} is function-like; write a function or a template"
        elif define[1] not in MACROS:
            yield f"macro: {define[1]}; write a constexpr value, or add it to MACROS if a header asks"
    for switch, files in SWITCHES.items():
        if re.search(rf"\b{switch}\b", line.split("//")[0]) and not matches(file, files):
            yield f"switch: {switch} is known in {' '.join(files)} alone"


def check_file(root, file):
    lines = (root / file).read_text().splitlines()
    if len(lines) > MAX_LINES:
        yield f"{file}: {len(lines)} lines; {MAX_LINES} is the ceiling, so split it"
    if file.endswith(SOURCES):
        for number, line in enumerate(lines, 1):
            for wrong in check_line(root, file, line):
                yield f"{file}:{number}: {wrong}"


def check_reading(root):
    """The sum of the reading path, and a note on what of it does not exist yet."""
    lengths = {name: len((root / name).read_text().splitlines())
               for name in READING if (root / name).is_file()}
    absent = [name for name in READING if name not in lengths]
    total = sum(lengths.values())
    note = f"reading path: {total} of {MAX_READING} lines"
    if absent:
        note += f"; not there yet: {' '.join(absent)}"
    if total <= MAX_READING:
        return note, []
    table = "\n".join(f"  {count:4} {name}" for name, count in lengths.items())
    return note, [f"{note}; shorten one of\n{table}"]


def listed(root):
    """The files of the repository, with the folders that they are in."""
    folders = FOLDERS + FREE + ["docs", "scripts", "cmake"]
    return sorted(str(path.relative_to(root)) for folder in folders for path in (root / folder).rglob("*")
                  if path.is_file() and path.suffix != ".pyc")


def check(root):
    """(files looked at, notes, violations)"""
    root = pathlib.Path(root)
    files = sorted(str(path.relative_to(root))
                   for folder in FOLDERS + FREE
                   for path in (root / folder).rglob("*")
                   if path.suffix in SOURCES + (".py",))
    note, violations = check_reading(root)
    notes, too_large = check_sizes(listed(root), lambda file: (root / file).read_text())
    violations += too_large
    violations += check_definitions({file: (root / file).read_text() for file in files
                                     if file.endswith(SOURCES) and not within(file, APART)})
    for file in files:
        violations += check_file(root, file)
    return files, [note, *notes], violations


def main():
    files, notes, violations = check(sys.argv[1])
    for violation in violations:
        print(violation)
    if not files:
        sys.exit(f"no sources under {sys.argv[1]}")
    print("\n".join([f"{len(files)} files, {len(violations)} violations", *notes]))
    sys.exit(1 if violations else 0)


if __name__ == "__main__":
    main()
