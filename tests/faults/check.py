"""check.py REPOSITORY: every text that a planted fault replaces is in its file, exactly once, and every
test and fault that README.md names is there.

A table whose faults cannot be planted any more shows nothing. Prints what does not fit; exit status 1
if anything.
"""

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
        path = root / fault.file
        text = path.read_text() if path.is_file() else ""
        for old, new in fault.edits:
            if text.count(old) != 1 or old == new:
                yield f"{fault.name}: {fault.file} has {text.count(old)} times, expected once:\n{old}"
            text = text.replace(old, new)


def misnamed(root):
    page = pathlib.Path(__file__).with_name("README.md").read_text()
    tests = "".join(path.read_text() for path in (root / "tests").rglob("*_test.cpp"))
    known = set(re.findall(r"^TEST(?:_F|_P)?\((\w+), (\w+)\)", tests, re.MULTILINE))
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
    found = [*problems(root), *misnamed(root)]
    print("\n".join(found + [f"{len(FAULTS)} faults, {len(UNSEEN)} that parity cannot see, "
                             f"{len(MESHES)} meshes without a fault; {len(found)} do not fit"]))
    sys.exit(1 if found else 0)
