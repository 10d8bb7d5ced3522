#!/usr/bin/env python3
"""The Python module against NumPy, the references of transformers, and what the programs print.

test_triax.py [FOLDER OF THE PROGRAMS]: build/install/bin without it.
"""

import gc
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import weakref

import numpy as np

import triax

try:
    import torch
except ImportError:
    torch = None

ROOT = pathlib.Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "tests/reference"
programs = ROOT / "build/install/bin"
MODEL = dict(layers=2, heads=4, width=16, context=8, vocab=64, micro_batch=1)


def program(name, *words):
    ran = subprocess.run([programs / name, *map(str, words)], capture_output=True, text=True,
                         env=dict(os.environ, OMP_NUM_THREADS="1"))
    if ran.returncode != 0:
        raise AssertionError(f"{name} {words}: {ran.stderr}")
    return ran.stdout


def flags(**settings):
    return [word for name, value in settings.items() for word in ("--" + name.replace("_", "-"), value)]


def safetensors(path):
    """The arrays of a file by name."""
    data = pathlib.Path(path).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    kinds = {"F32": np.float32, "I64": np.int64}
    return {name: np.frombuffer(data[8 + size:][slice(*t["data_offsets"])], kinds[t["dtype"]]).reshape(t["shape"])
            for name, t in json.loads(data[8:8 + size]).items() if name != "__metadata__"}


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def fails(self, code, words, call):
        """The call raises triax.Error with this code and these words in its text."""
        with self.assertRaises(triax.Error) as raised:
            call()
        self.assertEqual(raised.exception.code, code, raised.exception)
        for word in words:
            self.assertIn(word, str(raised.exception))


class Tensors(Case):
    def test_share_memory_both_ways(self):
        theirs = np.arange(6, dtype=np.float32).reshape(2, 3)
        ours = triax.from_dlpack(theirs)
        self.assertEqual((ours.shape, ours.dtype), ((2, 3), "f32"))
        theirs[1, 2] = 60
        back = ours.numpy()
        np.testing.assert_array_equal(back, [[0, 1, 2], [3, 4, 60]])
        back[0, 0] = 10
        self.assertEqual(theirs[0, 0], 10)
        self.assertEqual(back.ctypes.data, theirs.ctypes.data)

    def test_keep_the_owner_until_the_last_has_gone(self):
        class Owner(np.ndarray):
            pass

        theirs = np.zeros(1000).view(Owner)
        alive = weakref.ref(theirs)
        back = np.from_dlpack(triax.from_dlpack(theirs))
        del theirs
        gc.collect()
        self.assertIsNotNone(alive())
        del back
        gc.collect()
        self.assertIsNone(alive())

    def test_every_dtype_and_conversion(self):
        for kind, name in [("f2", "f16"), ("f4", "f32"), ("f8", "f64"), ("i4", "i32"), ("i8", "i64"), ("u1", "u8")]:
            values = np.array([[1, 2, 100]], kind)
            ours = triax.from_dlpack(values)
            self.assertEqual(ours.dtype, name)
            self.assertEqual(ours.numpy().dtype, values.dtype)
            np.testing.assert_array_equal(ours.to("bf16").to("f32").numpy(), [[1, 2, 100]])
        self.fails(64, ["c64", "bf16"], lambda: ours.to("c64"))

    def test_refuses_what_it_cannot_share(self):
        grid = np.zeros((4, 6), np.float32)
        fixed = np.zeros(3, np.float32)
        fixed.flags.writeable = False
        for array in (grid.T, grid[:, ::2], np.zeros(2, np.complex64)):
            self.fails(65, ["from_dlpack", "row-major"], lambda: triax.from_dlpack(array))
        self.fails(65, ["list", "writable"], lambda: triax.from_dlpack([1.0]))
        self.fails(65, ["ndarray", "writable"], lambda: triax.from_dlpack(fixed))
        self.assertEqual(triax.from_dlpack(grid[1:3]).shape, (2, 6))

    @unittest.skipIf(torch is None, "PyTorch is not here")
    def test_torch(self):
        theirs = torch.arange(4, dtype=torch.bfloat16)
        ours = triax.from_dlpack(theirs)
        self.assertEqual(ours.dtype, "bf16")
        back = torch.from_dlpack(ours)
        self.assertEqual((back.data_ptr(), back.dtype), (theirs.data_ptr(), torch.bfloat16))
        self.assertTrue(torch.equal(back, theirs))


class Checkpoints(Case):
    def imported(self, name):
        by = "minigpt" if name == "gpt2" else "triax-llama"
        program(by, "import", "--from", REFERENCE / name, "--out", self.folder / name)
        return triax.load(self.folder / name)

    def test_logits_are_those_of_transformers(self):
        for name in ("gpt2", "llama", "qwen3_moe"):
            checkpoint, reference = self.imported(name), safetensors(REFERENCE / name / "reference.safetensors")
            ids = np.array(reference["ids"])
            logits = checkpoint.logits(ids)
            self.assertEqual(logits.shape, (2, 12, 96))
            np.testing.assert_allclose(logits.numpy().reshape(24, 96), reference["logits"], atol=1e-5)
            one = triax.logits(self.folder / name, ids[1, :5].tolist())
            np.testing.assert_allclose(one.numpy(), reference["logits"][12:17], atol=1e-5)

    def test_tensors_and_settings(self):
        gpt2 = self.imported("gpt2")
        theirs = safetensors(REFERENCE / "gpt2/model.safetensors")
        table = next(value for name, value in theirs.items() if name.endswith("wte.weight"))
        np.testing.assert_array_equal(gpt2["tokens.table"].numpy(), table)
        self.assertEqual(gpt2.step, 0)
        self.assertEqual(gpt2.path, str(self.folder / "gpt2/step-0"))
        self.assertEqual({key: gpt2.settings[key] for key in ("layers", "heads", "width", "dropout")},
                         dict(layers=2, heads=4, width=24, dropout=0))
        self.assertIn("block1.up.weight", gpt2)
        self.assertEqual(len(dict(gpt2)), len(gpt2))
        self.assertRaises(KeyError, lambda: gpt2["block2.up.weight"])

    def test_wrong_ids(self):
        gpt2 = self.imported("gpt2")
        self.fails(65, ["token 96", "0 to 95"], lambda: gpt2.logits([0, 96]))
        self.fails(65, ["token -1"], lambda: gpt2.logits([-1]))
        for ids in ([0] * 17, [0.5], [[[1]]], np.zeros((2, 0), int)):
            self.fails(65, ["logits: ids", "1 to 16"], lambda: gpt2.logits(ids))

    def test_damaged_and_missing(self):
        self.fails(66, [str(self.folder / "none")], lambda: triax.load(self.folder / "none"))
        self.imported("gpt2")
        file = next((self.folder / "gpt2/step-0").glob("*.safetensors"))
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(data)
        self.fails(65, ["is damaged", file.name], lambda: triax.load(self.folder / "gpt2"))

    def test_a_trained_run(self):
        text, run = self.folder / "text", self.folder / "run"
        text.write_text("the cat sat on the mat. " * 40)
        program("minigpt", "train", "--comm", "threads", "--ranks", 2, "--tp", 2, "--precision", "bf16", "--data", text,
                "--out", run, *flags(layers=1, heads=2, width=16, context=8, micro_batch=2, global_batch=4, steps=3))
        checkpoint = triax.load(run)
        self.assertEqual((checkpoint.step, checkpoint.settings["precision"], checkpoint.settings["tp"]), (3, "bf16", 2))
        weight, master = checkpoint["block0.up.weight"], checkpoint["block0.up.weight@master"]
        self.assertEqual((weight.dtype, weight.shape), ("bf16", (64, 16)))
        np.testing.assert_array_equal(weight.to("f32").numpy(), master.to("bf16").to("f32").numpy())
        self.assertEqual(checkpoint.logits([0, 1]).shape[0], 2)
        lines = (run / "metrics.jsonl").read_text()
        self.assertEqual(triax.metrics(run), [json.loads(line) for line in lines.splitlines()])
        self.assertEqual([line["step"] for line in triax.metrics(run) if "loss" in line][-1], 3)
        with open(run / "metrics.jsonl", "a") as file:
            file.write('{"step": 4, "lo')
        self.assertEqual(triax.metrics(run), [json.loads(line) for line in lines.splitlines()])
        self.fails(66, ["metrics", "run directory"], lambda: triax.metrics(self.folder / "none"))


class Instruments(Case):
    def test_plan(self):
        asked = dict(MODEL, ranks=8, global_batch=16, precision="bf16")
        printed = program("minigpt", "plan", "--json", *flags(**asked))
        self.assertEqual(triax.plan(**asked), [json.loads(line) for line in printed.splitlines()])
        zero = triax.plan("triax-llama", **MODEL, kv_heads=2, ranks=4, zero=3)
        self.assertEqual({(p["zero"], p["dp"] * p["pp"] * p["tp"]) for p in zero if p["dp"] > 1}, {(3, 4)})
        self.fails(64, ["unknown flag", "--rank"], lambda: triax.plan(rank=4))
        self.fails(64, ["program gpt", "minigpt"], lambda: triax.plan("gpt"))

    def test_schedule(self):
        printed = program("minigpt", "schedule", "--json", *flags(schedule="zb-v", pp=3, micros=6, times="1,1,0.5,0.25"))
        timeline = triax.schedule("zb-v", pp=3, micros=6, times=(1, 1, 0.5, 0.25))
        self.assertEqual(timeline, json.loads(printed))
        self.fails(78, ["zb-h1"], lambda: triax.schedule("none"))
        self.assertRaises(TypeError, lambda: triax.schedule(times=(1, 1, 1)))

    def parity(self, which="minigpt", **settings):
        text = self.folder / "text"
        text.write_text("the cat sat on the mat. " * 40)
        return triax.parity(which, data=text, steps=2, **settings)

    def test_parity(self):
        result = self.parity(mesh="1x2x2", layers=2, width=16, context=8)
        self.assertTrue(result["equal"], result)
        self.assertIsNone(result["difference"])
        self.assertEqual(len(result["steps"]), 2)
        self.assertAlmostEqual(result["steps"][1]["loss"], result["steps"][1]["mesh_loss"], 4)
        self.assertNotEqual(result["steps"][0]["loss"], result["steps"][1]["loss"])
        self.fails(78, ["tp=3", "heads=4"], lambda: self.parity(mesh="1x1x3"))

    def test_parity_names_what_differs(self):
        # Balance over a micro-batch depends on the mesh, which is what the flag's help says.
        result = self.parity("triax-llama", mesh="2x1x1", layers=1, width=16, heads=2, kv_heads=2, hidden=24, context=8,
                             experts=4, top_k=2, balance=1, balance_over="micro-batch", micro_batch=1, global_batch=4)
        self.assertFalse(result["equal"])
        found = {key: result["difference"][key] for key in ("step", "what", "name")}
        self.assertEqual(found, dict(step=1, what="gradient", name="block0.experts.router.weight"))

    def test_other_threads_run_meanwhile(self):
        done = threading.Event()
        work = threading.Thread(target=lambda: (self.parity(mesh="2x1x1", layers=4, width=64, context=32), done.set()))
        ticks = [time.monotonic()]
        work.start()
        while not done.wait(0.01):
            ticks.append(time.monotonic())
        ticks.append(time.monotonic())
        self.assertLess(np.diff(ticks).max(), (ticks[-1] - ticks[0]) / 2)


class Package(Case):
    def test_has_the_version_of_the_library(self):
        text = (ROOT / "packaging/python/pyproject.toml").read_text()
        self.assertIn(f'version = "{triax.__version__}"', text.splitlines())


if __name__ == "__main__":
    if len(sys.argv) > 1 and os.path.isdir(sys.argv[1]):
        programs = pathlib.Path(sys.argv.pop(1))
    unittest.main()
