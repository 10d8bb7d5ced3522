"""old_checkpoint_test.py MINIGPT MPIRUN: a run directory of version 0.1.0 is evaluated, resumed on another mesh and exported.
The expected figures are those that 0.1.0 went on with."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

from minigpt_program import metrics

minigpt = sys.argv[1]
fixture = pathlib.Path(__file__).resolve().parents[2] / "fixtures/checkpoint-0.1"
RUN = ("--layers 2 --heads 2 --width 8 --context 8 --micro-batch 2 --global-batch 4 --average 0.5 --val-every 3 --steps 9 "
       "--resume auto --out run --data text")
WENT_ON = [(2.6688292026519775, 1.3652038306947127), (2.695138096809387, 1.3159398446325339), (2.674229383468628, 1.2533504961236865)]


def run(folder, words):
    done = subprocess.run([minigpt, *words.split()], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


for mesh in "", "--comm threads --ranks 2 --dp 2 --zero 2", "--comm threads --ranks 4 --pp 2 --tp 2 --zero 3":
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        shutil.copytree(fixture, folder / "run")
        shutil.move(folder / "run/text", folder / "text")
        run(folder, "checkpoint verify run")
        said = run(folder, f"evaluate --checkpoint run --data text --val-fraction 0.1 --weights average {mesh}").splitlines()[-1]
        assert abs(float(said.split()[1]) - 2.699591536270945) < 1e-6, said
        run(folder, f"train {RUN} {mesh}")
        records = metrics(folder / "run")
        assert [r["step"] for r in records] == [7, 8, 9], records
        for record, (loss, norm) in zip(records, WENT_ON):
            assert abs(record["loss"] - loss) < 1e-6 * loss and abs(record["grad_norm"] - norm) < 1e-5 * norm, (record, loss, norm)
        assert abs(records[-1]["val_loss"] - 2.6966938219572367) < 1e-6, records[-1]
        run(folder, "export --checkpoint run --to hf")
        assert json.loads((folder / "hf/config.json").read_text())["n_layer"] == 2
