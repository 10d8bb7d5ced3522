"""Does what CONTRIBUTING.md says: its blocks, applied to a copy of the repository, build and pass.

recipes_test.py REPOSITORY WORK COMPILER: the copy is WORK/tree, its build WORK/build. Both stay, so
that the next run builds only what has changed since. A block of code, marked
`<!-- test: recipe -->`, stands below a line like
    In `FILE`, above|below `TEXT`:        whole lines, above or below the one line with TEXT
    In `FILE`, in place of `TEXT`:        TEXT occurs once
    New file `FILE`:
"""

import os
import pathlib
import re
import subprocess
import sys

BLOCK = re.compile(r"^(?:In `(?P<file>[^`]+)`, (?P<place>above|below|in place of) `(?P<text>[^`]+)`"
                   r"|New file `(?P<new>[^`]+)`):\n<!-- test: recipe -->\n```cpp\n(?P<code>.*?)^```$",
                   re.M | re.S)

# One program of the tests that the recipes touch.
PROGRAM = """
set(pipeline schedule check_schedule simulate)
list(TRANSFORM pipeline REPLACE ".+" "parallel/pipeline/\\\\0_test.cpp" OUTPUT_VARIABLE tests)
list(APPEND pipeline v_schedules building_block timeline)
list(TRANSFORM pipeline REPLACE ".+" "${PROJECT_SOURCE_DIR}/parallel/pipeline/\\\\0.cpp")
file(GLOB synthesis ${PROJECT_SOURCE_DIR}/parallel/pipeline/synthesis/*.cpp)
add_executable(test_recipes core/elementwise_test.cpp core/functors_test.cpp autograd/ops_test.cpp
               ${tests} ${pipeline} ${synthesis})
target_link_libraries(test_recipes PRIVATE triax_autograd triax_test_support GTest::gtest_main)
triax_warnings(test_recipes)
"""
KERNELS = ["tests/CMakeFiles/triax_kernels_emulated.dir/__/core/cuda/kernels/flip.cu.o"]
FILTER = "Slope/*:*Elementwise.Unary*:OpsTest.UnaryGradients:OpsTest.Flip:*Schedule*:*Simulat*"
MUST_RUN = ["Slope/softsign.IsTheDerivative", "OpsTest.UnaryGradients", "OpsTest.Flip"]


def insert(text, block):
    """`text` with the block's code where its line says."""
    place, anchor, code = block["place"], block["text"], block["code"]
    if text.count(anchor) != 1:
        raise SystemExit(f"CONTRIBUTING.md: `{anchor}` occurs {text.count(anchor)} times in "
                         f"{block['file']}; expected once")
    at = text.index(anchor)
    if place == "in place of":
        return text.replace(anchor, code.rstrip("\n"))
    line = text.rindex("\n", 0, at) + 1 if place == "above" else text.index("\n", at) + 1
    return text[:line] + code + text[line:]


def wanted(repository):
    """Every file of the copy: path -> bytes."""
    listed = subprocess.run(["git", "-C", repository, "ls-files", "-z", "--cached", "--others",
                             "--exclude-standard"], check=True, capture_output=True, text=True)
    paths = [p for p in listed.stdout.split("\0") if p and (repository / p).is_file()]
    files = {path: (repository / path).read_bytes() for path in paths}
    blocks = list(BLOCK.finditer(files["CONTRIBUTING.md"].decode()))
    places = re.findall(r"^(?:In `[^`]+`, |New file ).*:$", files["CONTRIBUTING.md"].decode(), re.M)
    if not blocks or len(blocks) != len(places):
        raise SystemExit(f"CONTRIBUTING.md: {len(blocks)} blocks of code below {len(places)} lines "
                         "that say where; expected one below each")
    for block in blocks:
        if block["new"]:
            files[block["new"]] = block["code"].encode()
        elif block["file"] not in files:
            raise SystemExit(f"CONTRIBUTING.md: there is no {block['file']}")
        else:
            files[block["file"]] = insert(files[block["file"]].decode(), block).encode()
    files["tests/CMakeLists.txt"] += PROGRAM.encode()
    return files


def write(tree, files):
    """Make `tree` hold exactly these files; those that it holds already are not touched."""
    for path in [p for p in tree.rglob("*") if p.is_file()]:
        if str(path.relative_to(tree)) not in files:
            path.unlink()
    for name, content in files.items():
        path = tree / name
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def run(command, **options):
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          **options)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: exit status {done.returncode}\n"
                         f"{done.stdout[-8000:]}")
    return done.stdout


def main(repository, work, compiler):
    tree, build = work / "tree", work / "build"
    write(tree, wanted(repository))
    environment = os.environ | {"CCACHE_BASEDIR": str(tree), "CCACHE_NOHASHDIR": "1"}
    off = [f"-DTRIAX_{name}=OFF" for name in ("CUDA", "MPI", "EXAMPLES", "INSTALL")]
    run(["cmake", "-G", "Ninja", "-S", tree, "-B", build, "-DCMAKE_BUILD_TYPE=Release",
         f"-DCMAKE_CXX_COMPILER={compiler}", "-DTRIAX_CPU_LEVELS=native",
         "-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_UNITY_BUILD_BATCH_SIZE=12", *off], env=environment)
    jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", "2")
    run(["ninja", "-C", build, "-j", jobs, "test_recipes", *KERNELS], env=environment)
    output = run([build / "bin/test_recipes", f"--gtest_filter={FILTER}"])
    for test in MUST_RUN:
        if f"[       OK ] {test}" not in output:
            raise SystemExit(f"{test} did not run\n{output[-8000:]}")
    print(output[-300:])


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve(), sys.argv[3])
