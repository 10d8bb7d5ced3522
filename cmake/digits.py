#!/usr/bin/env python3
"""Writes scikit-learn's 1,797 handwritten digits, 8 x 8 pixels, as a file of CIFAR-10's binary format.

Every pixel becomes 4 x 4 of 32 x 32, in three equal channels. The order is shuffled, always in the
same way: the last fifth is a fair sample.

cmake/digits.py digits.bin
cmake/digits.py digits.bin --from scikit_learn-1.7.2-cp311-cp311-manylinux2014_x86_64.whl
"""

import argparse
import gzip
import importlib.util
import pathlib
import random
import sys
import zipfile
import zlib

IN_PACKAGE = "datasets/data/digits.csv.gz"
COPY = pathlib.Path(__file__).resolve().parents[1] / "tests/fixtures/digits.csv.gz"
SIDE, SCALE, MAX = 8, 4, 16


def installed():
    """The file of an installed scikit-learn, which is not imported; None if there is none."""
    spec = importlib.util.find_spec("sklearn")
    for folder in (spec and spec.submodule_search_locations) or []:
        if (path := pathlib.Path(folder) / IN_PACKAGE).is_file():
            return path
    return None


def compressed(path):
    """digits.csv.gz: the file itself, or of a wheel or a package's directory."""
    if path.is_dir():
        return (path / IN_PACKAGE).read_bytes()
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return wheel.read("sklearn/" + IN_PACKAGE)
    return path.read_bytes()


def digits(text):
    """(label, 64 pixels) of each line."""
    for number, line in enumerate(text.splitlines(), 1):
        values = [int(value) for value in line.split(",")]
        *pixels, label = values
        if len(pixels) != SIDE * SIDE or not 0 <= min(pixels) <= max(pixels) <= MAX or label not in range(10):
            raise ValueError(f"line {number}: {len(pixels)} pixels and label {label}; "
                             f"expected {SIDE * SIDE} pixels of 0 to {MAX} and a label of 0 to 9")
        yield label, pixels


def record(label, pixels):
    gray = [(value * 255 + MAX // 2) // MAX for value in pixels]
    rows = (gray[y * SIDE:(y + 1) * SIDE] for y in range(SIDE))
    channel = b"".join(bytes(value for value in row for _ in range(SCALE)) * SCALE for row in rows)
    return bytes([label]) + 3 * channel


def shuffled(items):
    draw = random.Random(0)
    return [item for _, item in sorted(((draw.random(), item) for item in items), key=lambda pair: pair[0])]


def main():
    about, more, examples = __doc__.split("\n\n")
    parser = argparse.ArgumentParser(description=f"{about}\n\n{more}", epilog=examples,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path, help="the file to write")
    parser.add_argument("--from", dest="source", type=pathlib.Path, metavar="PATH",
                        help="digits.csv.gz, a wheel of scikit-learn, or the directory of its package; "
                             "default: of the installed scikit-learn, else tests/fixtures/digits.csv.gz")
    args = parser.parse_args()
    source = args.source or installed() or COPY
    try:
        records = [record(*digit) for digit in digits(gzip.decompress(compressed(source)).decode())]
        args.out.write_bytes(b"".join(shuffled(records)))
    except (ValueError, EOFError, KeyError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile) as e:
        sys.exit(f"digits.py: {source}: {e}; expected the digits.csv.gz of scikit-learn")
    except OSError as e:
        sys.exit(f"digits.py: {e.filename}: {e.strerror}")


if __name__ == "__main__":
    main()
