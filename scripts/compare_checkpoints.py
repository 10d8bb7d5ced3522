#!/usr/bin/env python3
"""Compares two checkpoints, of any meshes: settings and tensors that differ; exit code 0 if they are equal, else 1.

Tensors are compared whole, one at a time. `minigpt checkpoint verify` says whether all their checksums are right.
With numpy installed, tensors that differ are compared many times as fast."""

import array
import collections
import errno
import json
import math
import mmap
import os
import pathlib
import re
import stat
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "readers"))
from run_files import Arguments, Fail, expect, literals, member, parse, path, printable, run, typed  # noqa: E402

try:
    import numpy
except ImportError:
    numpy = None

MANIFEST, MOST_MANIFEST, MOST_HEADER, MOST_DIMS = "manifest.json", 256 << 20, 100_000_000, 8
TYPES = {"f32": ("F32", 4), "f64": ("F64", 8), "f16": ("F16", 2), "bf16": ("BF16", 2), "i32": ("I32", 4), "i64": ("I64", 8),
         "u8": ("U8", 1)}  # by dtype: that of safetensors, bytes
PLACES = {"out", "metrics", "resume", "config", "deepspeed"}  # where a run is, not what it is
Piece = collections.namedtuple("Piece", "data first run period offset")  # bytes; of the whole tensor they fill, from the
# first byte on, `run` of each `period`, beginning at `offset`


# -- Reading


def crc32c(data):
    table = []
    for crc in range(256):
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def newest(place):
    """The newest checkpoint of a run directory; another path as it is."""
    names = os.listdir(place) if os.path.isdir(place) else []
    steps = [int(name[5:]) for name in names
             if re.fullmatch(r"step-(0|[1-9]\d{0,18})", name, re.ASCII) and os.path.isdir(f"{place}/{name}")]
    return f"{place}/step-{max(steps)}" if steps else place


class Checkpoint:
    """A checkpoint whose manifest and headers were checked, tensors by name."""

    def __init__(self, place):
        self.path = newest(place.rstrip("/") or "/")
        self.damage = f"checkpoint {self.path} is damaged: "
        names = os.listdir(self.path) if os.path.isdir(self.path) else []
        expect(names, 66, f"checkpoint {self.path}: no such directory, or it is empty")
        expect(MANIFEST in names, 65, f"checkpoint {self.path}: this is not a checkpoint: it has no {MANIFEST}\n"
               "  Expected RUN/step-N, or a run directory that has one.")
        text = bytes(self.map(MANIFEST))
        expect(len(text) <= MOST_MANIFEST and re.match(rb'\{"crc32c":"[0-9a-f]{8}",', text)
               and int(text[11:19], 16) == crc32c(text[21:]), 65, f"{self.damage}{MANIFEST}, checksum differs")
        self.read(parse(text, self.damage + MANIFEST))

    def read(self, manifest):
        source, form = self.damage + MANIFEST, (manifest.get("format"), manifest.get("version"))
        expect(form == ("triax checkpoint", 1), 65, f"checkpoint {self.path}: format {printable(json.dumps(form))}; this "
               'script reads ["triax checkpoint", 1]')
        state = member(manifest, "state", dict, source)
        self.state = {key: typed(text, str, f"{source}, state") for key, text in state.items()}
        self.step = member(manifest, "step", int, source)
        self.files = [self.open(file, source) for file in member(manifest, "files", list, source)]
        self.tensors = member(manifest, "tensors", dict, source)
        for name in self.tensors:
            self.pieces(name)

    def map(self, name):
        """The bytes of a plain file."""
        try:
            with open(os.open(f"{self.path}/{name}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
                status = os.fstat(file.fileno())
                expect(stat.S_ISREG(status.st_mode), 65, f"{self.damage}{name} is no plain file")
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if status.st_size else b""
        except OSError as e:
            damage = e.errno in (errno.ENOENT, errno.ELOOP)
            raise Fail(65 if damage else 74, f"{self.damage}{name}: {e.strerror}") from None

    def open(self, file, source):
        """Name, bytes, where the tensors begin and the header of a safetensors file."""
        name, size = member(file, "name", str, source), member(file, "bytes", int, source)
        expect(name == os.path.basename(printable(name)) and name not in ("", ".", ".."), 65,
               f"{source}, file {printable(name)}; expected a plain file name")
        data = self.map(name)
        expect(len(data) == size, 65, f"{self.damage}{name}, {len(data)} bytes; expected {size}")
        begin = 8 + struct.unpack_from("<Q", data)[0] if size >= 8 else 8
        expect(begin <= min(size, MOST_HEADER), 65, f"{self.damage}{name}, a header of {begin - 8} bytes in a file of {size}")
        expect(crc32c(data[:begin]) == file.get("header_crc32c"), 65, f"{self.damage}{name}, header, checksum differs")
        return name, memoryview(data), begin, parse(data[8:begin], f"{self.damage}{name}, header")

    def pieces(self, name):
        """Those of a tensor, which fit it."""
        source = f"{self.damage}{MANIFEST}, tensor {printable(name)}"
        tensor = typed(self.tensors[name], dict, source)
        shape, parts = member(tensor, "shape", list, source), member(tensor, "parts", list, source)
        expect(member(tensor, "dtype", str, source) in TYPES and len(shape) <= MOST_DIMS, 65,
               f"{source} has an unknown dtype, or too many dims")
        size = math.prod(typed(n, int, f"{source}, its shape") for n in shape) * TYPES[tensor["dtype"]][1]
        pieces = [self.piece(tensor, typed(part, dict, f"{source}, a part"), source) for part in parts]
        held = sum(len(piece.data) for piece in pieces)
        expect(held == size, 65, f"{source}: {held} bytes in its parts; expected {size}")
        return pieces

    def piece(self, tensor, part, source):
        """What a part holds: a slice of a dim, and of that slice's elements a range."""
        shape, (code, size) = tensor["shape"] or [1], TYPES[tensor["dtype"]]
        numbers = [typed(n, int, f"{source}, a part") for key in ("slice", "range") if key in part
                   for n in member(part, key, list, source)]
        expect(len(numbers) == 3 * ("slice" in part) + 2 * ("range" in part), 65, f"{source}, a part is wrong")
        dim, begin, length = numbers[:3] if "slice" in part else (0, 0, shape[0])
        expect(dim < len(shape) and begin + length <= shape[dim], 65, f"{source}, a part has a wrong slice")
        inner = size * math.prod(shape[dim + 1:])
        whole = math.prod(shape[:dim]) * length * inner // size
        first, last = numbers[-2:] if "range" in part else (0, whole)
        expect(first <= last <= whole, 65, f"{source}, a part has a wrong range")
        data = self.stored(part, code, (last - first) * size, source)
        return Piece(data, first * size, length * inner, shape[dim] * inner, begin * inner)

    def stored(self, part, code, size, source):
        """The bytes of a part in its file."""
        index, tensor = member(part, "file", int, source, len(self.files) - 1), member(part, "tensor", str, source)
        name, data, begin, header = self.files[index]
        where = f"{self.damage}{name}, tensor {printable(tensor)}"
        entry = member(header, tensor, dict, where)
        offsets = [typed(n, int, where, len(data) - begin) for n in member(entry, "data_offsets", list, where)]
        expect(entry.get("dtype") == code and len(offsets) == 2 and offsets[1] - offsets[0] == size, 65,
               f"{where}, not stored as the manifest says")
        return data[begin + offsets[0]:begin + offsets[1]]

    def whole(self, name):
        """All bytes of a tensor, put together from its parts."""
        pieces = self.pieces(name)
        if len(pieces) == 1:
            return pieces[0].data
        together, filled = bytearray(sum(len(piece.data) for piece in pieces)), []
        for piece in pieces:
            done = 0
            while done < len(piece.data):  # what is consecutive in the whole tensor
                number, within = divmod(piece.first + done, piece.run)
                count = min(piece.run - within, len(piece.data) - done)
                to = number * piece.period + piece.offset + within
                together[to:to + count] = piece.data[done:done + count]
                filled.append((to, to + count))
                done += count
        filled.sort()
        exact = all(end == begin for (_, end), (begin, _) in zip(filled, filled[1:]))
        expect(exact, 65, f"{self.damage}{MANIFEST}, tensor {printable(name)}: an element is missing or stored twice")
        return together


# -- Comparing


def brief(text):
    return printable(text) if len(text) <= 60 else f"{len(text.encode())} bytes"


def facts_of(checkpoint):
    """All that is known beside tensors, but for what says it a second time."""
    facts = literals(checkpoint.state.get("settings", ""))
    facts |= {f"state: {key}": text for key, text in checkpoint.state.items() if key not in ("settings", "config")}
    return facts | {"step": str(checkpoint.step)}


def compare_facts(a, b):
    for name in sorted((a | b).keys() - PLACES):
        if a.get(name) != b.get(name):
            told = [brief(facts[name]) if name in facts else "not there" for facts in (a, b)]
            yield f"{printable(name)}: {told[0]} and {told[1]}"


def numbers(dtype, data):
    if numpy:
        wide = numpy.frombuffer(data, "<u2").astype("<u4") << 16 if dtype == "bf16" else data
        return numpy.frombuffer(wide, "<" + dict(bf16="f4", f16="f2", u8="u1").get(dtype, f"{dtype[0]}{TYPES[dtype][1]}"))
    if dtype == "f16":
        return struct.unpack(f"<{len(data) // 2}e", data)
    if dtype == "bf16":
        wide = bytearray(2 * len(data))
        wide[2::4], wide[3::4] = data[::2], data[1::2]
        data = wide
    return array.array({"f64": "d", "i32": "i", "i64": "q", "u8": "B"}.get(dtype, "f"), bytes(data))


def gap(x, y):
    """How many elements differ, and the largest absolute and relative difference."""
    if numpy:
        differ = ~((x == y) | ((x != x) & (y != y)))
        x, y = (side[differ].astype("f8" if side.dtype.kind == "f" else object) for side in (x, y))
        with numpy.errstate(all="ignore"):
            apart = abs(x - y)
            shares = apart / numpy.maximum(abs(x), abs(y))
        return len(x), *(float(numpy.nan_to_num(v.astype("f8"), nan=math.inf, posinf=math.inf).max(initial=0)) for v in (apart, shares))
    differ = [(a, b) for a, b in zip(x, y) if a != b and (a == a or b == b)]
    apart = [abs(a - b) for a, b in differ]
    shares = [far / max(abs(a), abs(b)) for far, (a, b) in zip(apart, differ)]
    return len(differ), *(max((math.inf if v != v else v for v in far), default=0) for far in (apart, shares))


def values_differ(dtype, x, y):
    """Why tensors of one shape differ, empty if they do not. In pieces: numbers need more memory than what is stored."""
    total, absolute, relative, same_bits, piece = 0, 0, 0, True, 1 << 20
    for at in range(0, len(x), piece):
        a, b = bytes(x[at:at + piece]), bytes(y[at:at + piece])
        if a != b:
            same_bits = False
            count, *far = gap(numbers(dtype, a), numbers(dtype, b))
            total, absolute, relative = total + count, max(absolute, far[0]), max(relative, far[1])
    if same_bits:
        return ""
    if total == 0:
        return "equal values in other bits (signs of zeros, kinds of NaN)"
    return f"{total} of {len(x) // TYPES[dtype][1]} elements, by up to {absolute:.3g}, relatively {relative:.3g}"


def difference(a, b, name):
    """Why one tensor differs, empty if it does not."""
    for has, has_not in ((a, b), (b, a)):
        if name not in has_not.tensors:
            return f"only in {has.path}"
    s, t = a.tensors[name], b.tensors[name]
    if (s["dtype"], s["shape"]) != (t["dtype"], t["shape"]):
        return f"{s['dtype']} {s['shape']} and {t['dtype']} {t['shape']}"
    why = values_differ(s["dtype"], a.whole(name), b.whole(name))
    sums = [[(part.get("slice"), part.get("range"), part.get("crc32c")) for part in t["parts"]] for t in (s, t)]
    expect(not why or sums[0] != sums[1], 65, f"checkpoint {a.path} or {b.path} is damaged: tensor {printable(name)} has other "
           "bytes and the same checksums\n  `checkpoint verify` says which.")
    return why


def compare_tensors(a, b):
    for name in sorted(a.tensors | b.tensors):
        if why := difference(a, b, name):
            yield f"{printable(name)}: {why}"


def listed(title, lines):
    """Prints what differs as it is found, and counts it."""
    count = 0
    for count, line in enumerate(lines, 1):
        if count == 1:
            print(f"{title} that differ:")
        print(f"  {line}")
    return count


def main():
    arguments = Arguments("triax-compare-checkpoints", __doc__)
    for name in ("A", "B"):
        arguments.add_argument(name, type=path, help="RUN/step-N, or a run directory, whose newest checkpoint is taken")
    args = arguments.parse_args()
    a, b = Checkpoint(args.A), Checkpoint(args.B)
    facts = listed("settings", compare_facts(facts_of(a), facts_of(b)))
    tensors = listed("tensors", compare_tensors(a, b))
    if facts + tensors:
        print(f"{facts} settings and {tensors} tensors differ")
        return 1
    print(f"equal: {len(a.tensors)} tensors and all settings")
    return 0


if __name__ == "__main__":
    run(main)
