"""check.py REPOSITORY: every text that a planted fault replaces is in its file, exactly once, and every
test and fault that README.md names is there, and every test that is to find a fault.

A table whose faults cannot be planted any more shows nothing. Prints what does not fit; exit status 1
if anything.
"""

import fnmatch
import pathlib
import re
import sys

from table import FAULTS, MESHES, UNSEEN


def problems(root):
    names = set()
    for fault in FAULTS + UNSEEN:
        if fault.name in names:
            yield f"{fault.name}: two faults of this name"
        names.add(fault.name)
        texts = {}
        for old, new, *other in fault.edits:
            file = other[0] if other else fault.file
            if file not in texts:
                texts[file] = (root / file).read_text() if (root / file).is_file() else ""
            if texts[file].count(old) != 1 or old == new:
                yield f"{fault.name}: {file} has {texts[file].count(old)} times, expected once:\n{old}"
            texts[file] = texts[file].replace(old, new)


def tests_of(root):
    tests = "".join(path.read_text() for path in (root / "tests").rglob("*_test.cpp"))
    return set(re.findall(r"^TEST(?:_F|_P)?\((\w+), (\w+)\)", tests, re.MULTILINE))


def without_tests(root):
    """Faults whose tests are not there."""
    names = [f"{suite}.{name}" for suite, name in tests_of(root)]
    names += [f"Instance/{name}/0" for name in names]
    for fault in UNSEEN:
        if fault.program.endswith(".py"):
            text = (root / "tests/examples/programs" / fault.program).read_text()
            missing = [name for name in fault.tests.split() if f"\ndef {name}(" not in text]
        else:
            missing = [pattern for pattern in fault.tests.split(":") if not fnmatch.filter(names, pattern)]
        yield from (f"{fault.name}: {fault.program} has no test {pattern}" for pattern in missing)


def misnamed(root):
    page = pathlib.Path(__file__).with_name("README.md").read_text()
    known = tests_of(root)
    faults = {fault.name for fault in FAULTS + UNSEEN}
    for row in re.findall(r"^\| \d+ \|.*", page, re.MULTILINE):
        number, _, held, planted = (cell.strip() for cell in row.strip("|").split("|"))
        for name in re.findall(r"`(\w+)\.(\w+)`", held):
            if name not in known:
                yield f"README.md, {number}: no test {'.'.join(name)}"
        for name in re.findall(r"`(\w+)`", planted):
            if name not in faults:
                yield f"README.md, {number}: no fault {name}"


if __name__ == "__main__":
    root = pathlib.Path(sys.argv[1])
    found = [*problems(root), *without_tests(root), *misnamed(root)]
    print("\n".join(found + [f"{len(FAULTS)} faults, {len(UNSEEN)} that parity cannot see, "
                             f"{len(MESHES)} meshes without a fault; {len(found)} do not fit"]))
    sys.exit(1 if found else 0)
