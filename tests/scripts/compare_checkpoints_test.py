"""scripts/compare_checkpoints.py: what differs, on other meshes too, and checkpoints that are damaged or none.
tests/examples/programs/report_test.py has those of real runs."""

import json
import math
import pathlib
import random
import struct
import unittest

from run_fixtures import ScriptTest
import compare_checkpoints as script
from run_files import Fail

FORMATS = {"f32": "f", "f64": "d", "f16": "e", "i32": "i", "i64": "q", "u8": "B"}


def tensor(dtype, shape, values, cut=()):
    """`cut`: the parts as slice and range, `{"slice": [0, 0, 1]}`; none: one whole."""
    data = struct.pack(f"<{len(values)}{FORMATS.get(dtype, 'H')}", *values)
    return {"dtype": dtype, "shape": list(shape), "data": data, "cut": cut or [{}]}


def elements_of(shape, part):
    """Their numbers in the whole tensor."""
    dim, begin, length = part.get("slice", (0, 0, shape[0]))
    inner = math.prod(shape[dim + 1:])
    held = [i for i in range(math.prod(shape)) if begin <= i // inner % shape[dim] < begin + length]
    return held[slice(*part.get("range", (0, len(held))))]


def write(folder, tensors, settings="lr = 0.001\n", change=lambda manifest: None, **state):
    """A checkpoint with a file for each part of a tensor."""
    folder.mkdir(parents=True, exist_ok=True)
    most = max(len(t["cut"]) for t in tensors.values())
    files, stored = [], {}
    for number in range(most):
        header, data = {}, b""
        for name, t in tensors.items():
            if number < len(t["cut"]):
                part, size = t["cut"][number], script.TYPES[t["dtype"]][1]
                held = b"".join(t["data"][i * size:i * size + size] for i in elements_of(t["shape"], part))
                header[name] = {"dtype": script.TYPES[t["dtype"]][0], "shape": [len(held) // size],
                                "data_offsets": [len(data), len(data) + len(held)]}
                data += held
                entry = stored.setdefault(name, {"dtype": t["dtype"], "shape": t["shape"], "parts": []})
                entry["parts"].append({"file": number, "tensor": name, "crc32c": script.crc32c(held)} | part)
        text = json.dumps(header).encode()
        text = struct.pack("<Q", len(text)) + text
        (folder / f"rank{number}.safetensors").write_bytes(text + data)
        files.append({"name": f"rank{number}.safetensors", "bytes": len(text + data), "header_crc32c": script.crc32c(text)})
    manifest = {"format": "triax checkpoint", "version": 1, "step": 2, "state": {"settings": settings} | state, "files": files,
                "tensors": stored}
    change(manifest)
    members = json.dumps(manifest)[1:].encode()
    (folder / "manifest.json").write_bytes(b'{"crc32c":"%08x",' % script.crc32c(members) + members)
    return str(folder)


class CompareTest(ScriptTest):
    script = "compare_checkpoints.py"

    def checkpoint(self, name, tensors=None, **more):
        return write(self.folder / name, tensors or {"w": tensor("f32", [2, 3], [1, 2, 3, 4, 5, 6])}, **more)

    def test_checksum(self):
        self.assertEqual(script.crc32c(b"123456789"), 0xE3069283)  # RFC 3720's polynomial

    def test_equal_ones(self):
        a, b = self.checkpoint("a"), self.checkpoint("b", settings='lr = 0.001\nout = "elsewhere"\n', config="other")
        self.assertEqual(self.call(a, b), "equal: 1 tensors and all settings\n")

    def test_what_differs_is_named(self):
        a = self.checkpoint("a", {"w": tensor("f32", [2, 3], [1, 2, 3, 4, 5, 6]), "v": tensor("f32", [1], [0]),
                                  "only": tensor("u8", [1], [7]), "z": tensor("f32", [2], [0.0, 1])}, text="x" * 61, same="s")
        b = self.checkpoint("b", {"w": tensor("f32", [2, 3], [1, 2.5, 3, 4, -5, 6]), "v": tensor("f64", [1], [0]),
                                  "z": tensor("f32", [2], [-0.0, 1])}, settings="lr = 0.01\nnew = 1\n", text="y", same="s")
        self.assertEqual(self.call(a, b, code=1), f"""settings that differ:
  lr: 0.001 and 0.01
  new: not there and 1
  state: text: 61 bytes and y
tensors that differ:
  only: only in {a}
  v: f32 [1] and f64 [1]
  w: 2 of 6 elements, by up to 10, relatively 2
  z: equal values in other bits (signs of zeros, kinds of NaN)
3 settings and 4 tensors differ
""")

    def test_every_type_with_and_without_numpy(self):
        nan, inf = math.nan, math.inf
        floats = [1.0, -2.0, nan, nan, inf, inf, -inf, 0.5], [1.0, -2.5, nan, 1.0, inf, -inf, -inf, 0.5]
        cases = {dtype: (tensor(dtype, [8], floats[0])["data"], tensor(dtype, [8], floats[1])["data"], (3, inf, inf))
                 for dtype in ("f16", "f32", "f64")}
        cases["bf16"] = [b"".join(struct.pack("<f", x)[2:] for x in side) for side in floats] + [(3, inf, inf)]
        cases["f32"] = (*(tensor("f32", [2], side)["data"] for side in ([inf, 1], [5, 1])), (1, inf, inf))
        cases["i64 beyond f64"] = (*(tensor("i64", [2], side)["data"] for side in ([2 ** 60, 1], [2 ** 60 + 1, 1])), (1, 1, 1 / (2 ** 60 + 1)))
        for dtype, top in (("u8", 255), ("i32", -2 ** 31), ("i64", 2 ** 60)):
            cases[dtype] = (tensor(dtype, [3], [1, top, 0])["data"], tensor(dtype, [3], [1, 0, 4])["data"], (2, abs(top), 1))
        numpy = script.numpy
        for which in {None, numpy}:
            script.numpy = which
            for dtype, (x, y, expected) in cases.items():
                got = script.gap(*(script.numbers(dtype.split()[0], side) for side in (x, y)))
                self.assertEqual((got[0], *map(float, got[1:])), expected, (which, dtype))
        script.numpy = numpy

    def test_parts_of_any_mesh(self):
        draw = random.Random(1)
        for number in range(40):
            shape = [draw.randint(1, 5) for _ in range(draw.randint(1, 3))]
            dim = draw.randrange(len(shape))
            at = draw.randint(0, shape[dim])
            slices = [[0, at], [at, shape[dim]]]
            cut = []
            for begin, end in slices:  # tensor parallelism; ZeRO cuts anywhere
                held = math.prod(shape) // shape[dim] * (end - begin)
                middle = draw.randint(0, held)
                cut += [{"slice": [dim, begin, end - begin], "range": r} for r in ([0, middle], [middle, held])]
            draw.shuffle(cut)
            values = [draw.random() for _ in range(math.prod(shape))]
            a = self.checkpoint(f"a{number}", {"w": tensor("f64", shape, values)})
            b = self.checkpoint(f"b{number}", {"w": tensor("f64", shape, values, cut)})
            whole = script.Checkpoint(b).whole("w")
            self.assertEqual(bytes(whole), bytes(script.Checkpoint(a).whole("w")), (shape, cut))
        self.assertIn("equal: 1 tensors", self.call(a, b))

    def test_newest_of_a_run(self):
        for step in (9, 10):
            self.checkpoint(f"run/step-{step}")
        for other in ("step-011", "step-12.tmp-1"):
            (self.folder / "run" / other).mkdir()
        for run in ("run", "run/", "run/step-10"):
            self.assertEqual(pathlib.Path(script.Checkpoint(str(self.folder / run)).path).name, "step-10")

    def test_directories_that_are_none(self):
        (self.folder / "folder").mkdir()
        a = self.checkpoint("a")
        for words, code, why in (((a, "nowhere"), 66, "nowhere: no such directory"), ((a, "folder"), 66, "or it is empty"),
                                 ((a,), 64, "required: B"), ((a, a, a), 64, "unrecognized"), ((a, ""), 64, "it is empty")):
            self.assertIn(why, self.call(*words, code=code))
        (self.folder / "folder/file").touch()
        self.assertIn("this is not a checkpoint: it has no manifest.json", self.call("folder", a, code=65))

    def refused(self, folder, why):
        with self.assertRaises(Fail) as failed:
            a = script.Checkpoint(str(self.folder / folder))
            list(script.compare_tensors(a, a))
        self.assertEqual(failed.exception.code, 65)
        for part in ("is damaged: ", why):
            self.assertIn(part, str(failed.exception))

    def test_files_that_are_damaged(self):
        a = pathlib.Path(self.checkpoint("a"))
        file, manifest = a / "rank0.safetensors", a / "manifest.json"
        whole, text = file.read_bytes(), manifest.read_bytes()
        file.write_bytes(whole[:-1])
        self.refused(a, f"rank0.safetensors, {len(whole) - 1} bytes; expected {len(whole)}")
        file.write_bytes(whole.replace(b"data_offsets", b"data_offsetz"))
        self.refused(a, "rank0.safetensors, header, checksum differs")
        file.write_bytes(b"\xff" * len(whole))
        self.refused(a, "a header of")
        file.unlink()
        self.refused(a, "rank0.safetensors: No such file")
        file.symlink_to(manifest)
        self.refused(a, "rank0.safetensors: Too many levels")
        for damaged in (text + b" ", text[:100], b"", text.replace(b'"step": 2', b'"step": 3')):
            manifest.write_bytes(damaged)
            self.refused(a, "manifest.json, checksum differs")

    def test_bytes_that_their_checksums_do_not_fit(self):
        a, b = self.checkpoint("a"), pathlib.Path(self.checkpoint("b"))
        file = b / "rank0.safetensors"
        file.write_bytes(file.read_bytes()[:-1] + b"\1")
        self.assertRegex(self.call(a, b, code=65), "a or .*/b is damaged: tensor w has other bytes and the same checksums")

    def test_manifests_that_are_hostile(self):
        def with_part(**change):
            return lambda m: m["tensors"]["w"]["parts"][0].update(change)

        def with_tensor(**change):
            return lambda m: m["tensors"]["w"].update(change)
        for change, why in ((with_part(file=1), "file"), (with_part(file=-1), "file"), (with_part(tensor="x"), "has no x"),
                            (with_part(tensor=[]), "a text"), (with_part(slice=[0, 1, 2]), "wrong slice"),
                            (with_part(slice=[9, 0, 1]), "wrong slice"), (with_part(slice=[0]), "a part is wrong"),
                            (with_part(range=[3, 9]), "wrong range"), (with_part(range=[0, 3]), "not stored"),
                            (with_part(slice={}), "an array"), (with_tensor(shape=[2, 4]), "not stored"),
                            (with_tensor(shape=[2 ** 62, 2 ** 62]), "not stored"), (with_tensor(shape=["x"]), "a whole number"),
                            (with_tensor(shape=[1] * 99), "too many dims"), (with_tensor(dtype="f99"), "unknown dtype"),
                            (with_tensor(dtype="f16"), "not stored"), (with_tensor(parts=[]), "0 bytes in its parts"),
                            (with_tensor(parts=[7]), "an object"), (lambda m: m.update(tensors=[]), "an object"),
                            (lambda m: m["tensors"].update(w=7), "an object"), (lambda m: m.update(step="x"), "a whole number"),
                            (lambda m: m["state"].update(settings=7), "a text"), (lambda m: m.update(files=[7]), "has no name"),
                            (lambda m: m["files"][0].update(name="../a"), "a plain file name"),
                            (lambda m: m["files"][0].update(name=""), "a plain file name")):
            self.checkpoint("a", change=change)
            self.refused("a", why)
        self.checkpoint("a", change=lambda m: m.update(version=2))
        self.assertIn('["triax checkpoint", 2]; this script reads', self.call("a", "a", code=65))
        twice = tensor("f32", [2, 2], [1, 2, 3, 4], [{"slice": [0, 0, 1]}, {"slice": [0, 0, 1]}])
        self.checkpoint("a", {"w": twice})
        self.refused("a", "missing or stored twice")
        one = tensor("f32", [1], [1])
        said = self.call(self.checkpoint("a", {"\x1b[2J": one}), self.checkpoint("b", {"x": one}), code=1)
        self.assertIn("  ?[2J: only in ", said)

    def test_whatever_a_manifest_says_is_refused_or_read(self):
        halves = [{"slice": [1, 0, 1]}, {"slice": [1, 1, 1]}]
        a = pathlib.Path(self.checkpoint("a", {"w": tensor("f32", [2, 2], [1, 2, 3, 4], halves)}))

        def read(file):
            members = file.read_bytes()[21:]
            file.write_bytes(b'{"crc32c":"%08x",' % script.crc32c(members) + members)
            both = script.Checkpoint(str(a)), script.Checkpoint(str(a))
            list(script.compare_tensors(*both)), script.facts_of(both[0])
        self.mutate((a / "manifest.json").read_text(), a / "manifest.json", read)


if __name__ == "__main__":
    unittest.main()
