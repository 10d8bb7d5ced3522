"""What the tests of scripts/report.py and scripts/overlay.py read: run directories and traces, and how they call a script."""

import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path[:0] = [str(SCRIPTS), str(SCRIPTS / "readers")]


class ScriptTest(unittest.TestCase):
    script = ""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def call(self, *words, code=0):
        """What the script prints: on stdout, or if it fails on stderr, in the form of all triax programs."""
        done = subprocess.run([sys.executable, SCRIPTS / self.script, *words], capture_output=True, text=True, timeout=120,
                              cwd=self.folder, errors="surrogateescape")
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        if code > 1:
            self.assertTrue(done.stderr.startswith(f"triax: error {code}: "), done.stderr)
        return done.stderr if code > 1 else done.stdout

    def mutate(self, text, file, read):
        """Whatever the bytes of a file are, `read` accepts them or says what is wrong."""
        import run_files
        draw, whole = random.Random(1), text.encode()
        words = [b"-1", b"1e999", b"null", b"[]", b"{}", b'""', b"true", b"0", b"9" * 30, b'"', b"}", b"\n", b"\xff", b"\0"]
        refused = 0
        for _ in range(1500):
            data = bytearray(whole)
            for _ in range(draw.randint(1, 3)):
                at = draw.randrange(len(data))
                data[at:at + draw.choice((0, 1, 1, 4))] = draw.choice(words)
            file.write_bytes(data)
            try:
                read(file)
            except run_files.Fail as e:
                refused += 1
                self.assertEqual(e.code, 65, e)
        self.assertGreater(refused, 100)


def line(step, **more):
    return json.dumps({"step": step, "loss": 1 / step, "tokens": 64, "tokens_per_second": 8, "skipped": False} | more) + "\n"


def event(rank, name, kind, begin, end):
    """Times in microseconds."""
    return f'{{"ph":"X","pid":{rank + 1},"tid":{rank + 1},"name":"{name}","cat":"{kind}","ts":{begin},"dur":{end - begin}}}'


def trace(events, steps="[7,7]", schedule="1f1b"):
    """Of two stages."""
    ranks = ",\n".join(f'{{"rank":{r},"dp":0,"pp":{r},"tp":0,"busy":0.5,"communicating":0.25,"waiting":0.125}}'
                       for r in (0, 1))
    return (f'{{"displayTimeUnit":"ms","steps":{steps},"schedule":"{schedule}","placement":"ring","ranks":[\n{ranks}],\n'
            '"traceEvents":[\n' + ",\n".join(events) + "]}\n")


def small_trace():
    """A micro-batch: 2 ms forward and 4 ms backward on each stage, 1 ms between the stages, and 0.5 ms more before stage 0
    goes on."""
    steps = [event(rank, name, "work", *times) for rank in (0, 1) for name, times in
             (("step 7", (0, 40000)), ("step", (500, 16000)))]
    return trace([*steps, event(0, "F0", "action", 1000, 3000), event(1, "F0", "action", 1000, 6000),
                  event(1, "wait recv link 0 up", "waiting", 1000, 4000), event(1, "B0", "action", 6000, 10000),
                  event(0, "B0", "action", 3000, 15500), event(0, "wait recv link 0 down", "waiting", 3000, 11500)])


def gpipe_trace():
    """Two micro-batches in step 3; stage 1 waits 1 ms for each forward. Beside it what belongs to other steps."""
    events = []
    for rank in (0, 1):
        events += [event(rank, "step 2", "work", 0, 900), event(rank, "step", "work", 5, 850), event(rank, "F0", "action", 10, 810),
                   event(rank, "step 3", "work", 1000, 31000), event(rank, "step", "work", 1000, 20000),
                   event(rank, "F0", "action", 25000, 25800)]  # of a validation
    for m in (0, 1):
        events += [event(0, f"F{m}", "action", 2000 + 2000 * m, 4000 + 2000 * m),
                   event(1, f"F{m}", "action", 3000 + 3000 * m, 6000 + 3000 * m),
                   event(1, "wait move link 0 up", "waiting", 3000 + 3000 * m, 4000 + 3000 * m),
                   event(0, "wait all_reduce dp", "waiting", 2500 + 2000 * m, 2600 + 2000 * m),
                   event(1, f"B{m}", "action", 9000 + 3000 * m, 12000 + 3000 * m),
                   event(0, f"B{m}", "action", 12000 + 3000 * m, 15000 + 3000 * m)]
    events.append(event(0, "wait move link 0 down", "waiting", 6500, 7500))  # after its forwards
    return trace(events, "[2,3]", "gpipe")
