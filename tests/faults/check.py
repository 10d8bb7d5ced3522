"""check.py REPOSITORY: every text that a planted fault replaces is in its file, exactly once.

A table whose faults cannot be planted any more shows nothing. Prints what does not fit; exit status 1
if anything.
"""

import pathlib
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


if __name__ == "__main__":
    found = list(problems(pathlib.Path(sys.argv[1])))
    print("\n".join(found + [f"{len(FAULTS)} faults, {len(UNSEEN)} that parity cannot see, "
                             f"{len(MESHES)} meshes without a fault; {len(found)} do not fit"]))
    sys.exit(1 if found else 0)
