"""targets.py BUILD NAME: what to build, one target a line, to run the tests whose name matches the regular expression.

ctest knows the names of GoogleTest's tests only after their program was built; before that they are read from the
sources. If no name matches, a test program counts whose sources hold NAME anywhere.
"""

import json
import pathlib
import re
import subprocess
import sys

TESTS = pathlib.Path(__file__).resolve().parent
TEST = re.compile(r"^(?:TYPED_)?TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", re.M)
INSTANCE = re.compile(r"^(?:INSTANTIATE_TEST_SUITE_P|INSTANTIATE_TYPED_TEST_SUITE_P)\(\s*(\w*),\s*(\w+)", re.M)
TARGET = re.compile(r"/(?:bin/(\w+)$|CMakeFiles/(\w+)\.dir/)")


def tests_of(build):
    """Name of each test that ctest knows, and the targets in its command."""
    command = ["ctest", "--test-dir", build, "--show-only=json-v1"]
    listed = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    own = str(pathlib.Path(build).resolve())
    return {test["name"]: {found[1] or found[2] for word in test.get("command", []) if word.startswith(own)
                           for found in [TARGET.search(word)] if found}
            for test in listed["tests"]}


def sources_of(program):
    folder = TESTS / program.removeprefix("test_")
    return "\n".join(path.read_text() for path in sorted(folder.rglob("*")) if path.suffix in (".cpp", ".h"))


def names_in(program, text):
    """As ctest will name them, but for what stands behind a parameter's /."""
    folder = program.removeprefix("test_")
    prefixes = {}
    for prefix, suite in INSTANCE.findall(text):
        prefixes.setdefault(suite, []).append(f"{prefix}/" if prefix else "")
    for suite, test in TEST.findall(text):
        for prefix in prefixes.get(suite, [""]):
            yield f"{folder}.{prefix}{suite}.{test}"


def main(build, name):
    known, wanted = tests_of(build), re.compile(name)
    matching = [test for test in known if wanted.search(test) and not test.endswith("_NOT_BUILT")]
    targets = {target for test in matching for target in known[test]}
    programs = {test.removesuffix("_NOT_BUILT") for test in known} | {t for of in known.values() for t in of}
    sources = {program: sources_of(program) for program in programs if program.startswith("test_")}
    targets |= {program for program, text in sources.items() if any(map(wanted.search, names_in(program, text)))}
    if not targets and not matching:
        targets = {program for program, text in sources.items() if wanted.search(text)}
    if not targets and not matching:
        sys.exit(f"error: targets: no test has {name} in its name or its source")
    for target in sorted(targets):
        print(target)


if __name__ == "__main__":
    main(*sys.argv[1:])
