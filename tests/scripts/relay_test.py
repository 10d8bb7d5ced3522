"""scripts/readers/relay.py, with modules in the place of wandb and mlflow that keep what is sent in a file."""

import fcntl
import json
import os
import subprocess
import sys
import time
import unittest
import unittest.mock

import run_fixtures
from run_fixtures import SCRIPTS, ScriptTest

COMMON = """
import json, os, types
FILE = "sent.jsonl"
def rows():
    return [json.loads(row) for row in open(FILE)] if os.path.exists(FILE) else []
def keep(run, step, values):
    with open(FILE, "a") as file:
        file.write(json.dumps([run, step, values]) + "\\n")
"""
WANDB = COMMON + """
def init(id, name, resume):
    assert resume == "allow"
    mine = [step for run, step, _ in rows() if run.startswith(id)]
    return types.SimpleNamespace(log=lambda values, step: keep(f"{id} {name}", step, values), finish=lambda: None,
                                 starting_step=max(mine) + 1 if mine else 0)
"""
MLFLOW = COMMON + """
active = None
def known(run_id):
    return types.SimpleNamespace(info=types.SimpleNamespace(run_id=run_id), data=types.SimpleNamespace(
        metrics={k: v for run, _, values in rows() if run == run_id for k, v in values.items()}))
def search_runs(filter_string, output_format):
    assert output_format == "list" and filter_string.startswith("tags.triax = '")
    return [known(run) for run, _, _ in rows() if run.startswith(filter_string.split("'")[1])][:1]
def start_run(run_id=None, run_name=None, tags=None):
    global active
    assert active is None
    active = run_id or f"{tags['triax']} {run_name}"
    return known(active)
def log_metrics(values, step):
    assert all(isinstance(value, (int, float)) for value in values.values())
    keep(active, step, values)
def end_run():
    global active
    active = None
"""


def line(step, **more):
    """As a run writes it, without blanks."""
    return run_fixtures.line(step, **more).replace(', "', ',"')


class RelayTest(ScriptTest):
    script = "readers/relay.py"

    def setUp(self):
        super().setUp()
        self.run_dir = self.folder / "mine"
        self.run_dir.mkdir()
        self.metrics = self.run_dir / "metrics.jsonl"
        (self.folder / "wandb.py").write_text(WANDB)
        (self.folder / "mlflow.py").write_text(MLFLOW)
        paths = unittest.mock.patch.dict(os.environ, PYTHONPATH=str(self.folder), PYTHONDONTWRITEBYTECODE="1")
        paths.start()
        self.addCleanup(paths.stop)

    def write(self, *steps, **more):
        self.metrics.write_text("".join(line(step, **more) for step in steps))

    def sent(self):
        file = self.folder / "sent.jsonl"
        return [json.loads(row) for row in file.read_text().splitlines()] if file.exists() else []

    def steps(self):
        return [step for _, step, _ in self.sent()]

    def each(self):
        for to in ("wandb", "mlflow"):
            (self.folder / "sent.jsonl").unlink(missing_ok=True)
            yield to

    def until(self, holds):
        end = time.monotonic() + 60
        while not holds():
            self.assertLess(time.monotonic(), end, self.sent())
            time.sleep(0.02)

    def test_numbers_of_each_step_once(self):
        for to in self.each():
            self.write(1, 2, overflow="the loss", grad_norm=None, val_loss=0.5)
            self.assertEqual(self.call("mine", "--to", to, "--once"), f"mine: 2 steps sent to {to}, up to step 2\n")
            run, step, values = self.sent()[1]
            self.assertEqual((run[16:], step, values), (" mine", 2, {"step": 2, "loss": 0.5, "tokens": 64,
                             "tokens_per_second": 8, "skipped": 0, "val_loss": 0.5}))
            whole = self.metrics.read_text()
            self.metrics.write_text(whole + line(3) + line(4)[:30])
            self.assertEqual(self.call("mine", "--to", to, "--once"), f"mine: 1 steps sent to {to}, up to step 3\n")
            self.metrics.write_text(whole + line(3) + line(4))
            self.call("mine", "--to", to, "--once")
            self.assertEqual(self.steps(), [1, 2, 3, 4], "a line that was cut is sent when it is whole")
            self.assertEqual(len({run for run, _, _ in self.sent()}), 1)

    def test_follows_a_run_that_is_resumed(self):
        for to in self.each():
            self.metrics.unlink(missing_ok=True)
            with open(self.run_dir / "lock", "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                relay = subprocess.Popen([sys.executable, SCRIPTS / self.script, "mine", "--to", to, "--wait", "0.1"],
                                         cwd=self.folder, stdout=subprocess.PIPE, text=True)
                self.addCleanup(relay.kill)
                time.sleep(0.5)  # for longer than --wait there is no line
                self.write(1, 2, 3, 4)
                self.until(lambda: len(self.sent()) == 4)
                with open(self.metrics, "a") as file:
                    file.write(line(5))
                self.until(lambda: len(self.sent()) == 5)
                # Resumed at step 2, and longer than before when the relay looks again.
                self.metrics.write_text(line(1) + line(2) + "".join(line(step, loss=7) for step in range(3, 9)))
                self.until(lambda: len(self.sent()) == 8)
                self.metrics.write_text(line(1) + line(2) + line(3, loss=8))  # again, and shorter
                time.sleep(0.3)
                with open(self.metrics, "a") as file:
                    file.write("".join(line(step, loss=8) for step in range(4, 10)))
                self.until(lambda: len(self.sent()) >= 9)
                self.assertIsNone(relay.poll(), "the run goes on")
            self.assertEqual(relay.communicate(timeout=60)[0], f"mine: 9 steps sent to {to}, up to step 9\n")
            self.assertEqual(self.steps(), list(range(1, 10)))
            self.assertEqual([values["loss"] for _, _, values in self.sent()], [1, 1 / 2, 1 / 3, 1 / 4, 1 / 5, 7, 7, 7, 8])

    def test_a_run_that_is_replaced_and_ends_at_once_is_sent(self):
        self.write(1, 2, seconds=1)
        with open(self.run_dir / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            relay = subprocess.Popen([sys.executable, SCRIPTS / self.script, "mine", "--to", "wandb", "--wait", "0"],
                                     cwd=self.folder, stdout=subprocess.DEVNULL)
            self.addCleanup(relay.kill)
            self.until(lambda: len(self.sent()) == 2)
            self.write(*range(1, 2000))
        self.assertEqual(relay.wait(timeout=60), 0)
        self.assertEqual(self.steps(), [1, 2, *range(1, 2000)])
        self.assertEqual(len({run for run, _, _ in self.sent()}), 2)

    def test_another_run_in_the_directory_is_another(self):
        for to in self.each():
            self.write(1, 2, 3, seconds=0.5)
            self.call("mine", "--to", to, "--once")
            self.write(1, seconds=0.5, val_loss=3)  # added by a run that is resumed: the same
            self.call("mine", "--to", to, "--once")
            self.write(1, 2, seconds=0.25)
            self.call("mine", "--to", to, "--once")
            self.assertEqual(self.steps(), [1, 2, 3, 1, 2])
            self.assertEqual([len({run for run, _, _ in self.sent()[a:b]}) for a, b in ((0, 3), (3, 5), (0, 5))], [1, 1, 2])

    def test_what_is_missing_or_damaged(self):
        self.write(1)
        for words in ((), ("mine",), ("mine", "--to", "paper"), ("", "--to", "wandb"), ("mine", "--to", "wandb", "--wait", "x")):
            self.call(*words, code=64)
        self.assertIn("there is no here; expected a run directory", self.call("here", "--to", "wandb", code=66))
        self.metrics.write_text(line(1) + '{"step":\n')
        self.assertIn(f"metrics.jsonl, at byte {len(line(1))}, not JSON", self.call("mine", "--to", "wandb", "--once", code=65))
        self.assertEqual(self.steps(), [1])
        for module in ("wandb", "mlflow"):
            (self.folder / f"{module}.py").write_text(f"raise ModuleNotFoundError(\"No module named '{module}'\")")
            self.assertIn(f"pip install {module}\n", self.call("mine", "--to", module, code=78))
        (self.folder / "wandb.py").write_text("def init(**_): raise ConnectionError('no network')")
        self.assertIn("wandb: ConnectionError('no network')", self.call("mine", "--to", "wandb", code=74))


if __name__ == "__main__":
    unittest.main()
