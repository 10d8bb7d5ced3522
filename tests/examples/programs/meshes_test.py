"""meshes_test.py PROGRAM: `parity` of llama, mesh_mlp or resnet says EQUAL on meshes of threads with every ZeRO stage and every
pipeline schedule, the program's own too; settings that cannot work are refused."""

import os
import pathlib
import subprocess
import sys
import tempfile

from minigpt_program import some_text

program = pathlib.Path(sys.argv[1])
name = program.name.removeprefix("triax-")
flags = "--steps 2 --micro-batch 1 --global-batch 12"
schedules = ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-interleaved", "zb-2p", "1f1b-v", "v-min", "v-half", "zb-v",
             "dualpipev"]
if name == "llama":
    flags += " --layers 2 --width 16 --heads 4 --kv-heads 2 --hidden 24 --context 8 --data text.txt"
    schedules.append("eager-1f1b")  # which the program registers
    llama3 = "--tie-embeddings --rope-factor 4 --rope-original-context 8 --rope-theta 500"
if name == "resnet":
    flags += " --width 4 --bn-samples 1"

equal = [f"--mesh {mesh} --zero {zero}" for mesh in ("2x1x1", "3x1x1", "1x1x2", "2x1x2") for zero in range(4)]
for number, schedule in enumerate(schedules):  # each mesh with another ZeRO stage
    equal += [f"--mesh {mesh} --schedule {schedule} --zero {(number + place) % 4}"
              for place, mesh in enumerate(["1x2x1", "2x2x1", "1x2x2", "2x2x2"])]
    equal += [f"--mesh 2x2x2 --schedule {schedule} --zero 3 --sequence-parallel --micro-batch 2 --global-batch 8"]
equal += [f"--mesh 2x2x2 --zero {zero} --precision {precision}" for zero in (1, 3) for precision in ("bf16", "fp16")]
equal += ["--mesh 2x2x1 --zero 2 --micro-batch 6",  # no accumulation
          "--mesh 2x1x2 --zero 1 --recompute block",
          "--mesh 1x2x2 --zero 3 --recompute block-split --schedule zb-h1",
          "--mesh 1x4x1 --schedule zb-h1 --offload optimizer --workers 2",
          "--mesh 2x2x1 --zero 2 --schedule zb-v --precision fp16", "--mesh 1x2x2 --schedule dualpipev --recompute block",
          "--mesh 2x2x1 --zero 3 --offload params --offload-dir ."]
equal += [f"--reduce-dtype bf16 --mesh {mesh} --zero {number % 4} {more}" for number, (mesh, more) in enumerate([
    ("2x1x1", ""), ("4x1x1", ""), ("2x2x1", "--schedule zb-h1"), ("3x1x2", "--precision fp16"),
    ("2x1x1", "--precision bf16 --micro-batch 3"), ("2x1x2", ""), ("3x2x2", "--recompute block"), ("2x2x1", "")])]
equal += ["--reduce-dtype bf16 --mesh 2x2x1 --zero 3 --offload params --offload-dir ."]
equal += [f"--mesh {mesh} --tp-pieces {pieces} {more}" for mesh, pieces, more in [
    ("1x1x2", 2, ""), ("2x1x2", 4, "--micro-batch 2 --sequence-parallel"), ("1x2x2", 3, "--schedule zb-v --micro-batch 3"),
    ("2x2x2", 2, "--zero 3 --sequence-parallel --micro-batch 2 --recompute block"), ("1x1x2", 8, "--precision fp16"),
    ("1x1x2", 4, "--precision bf16 --sequence-parallel --micro-batch 4")]]
if name != "resnet":
    equal += [f"--bitwise --tp-slices 2 --mesh {mesh} --zero {number % 4} {more}" for number, (mesh, more) in enumerate([
        ("2x1x1", ""), ("3x2x1", "--schedule zb-h1"), ("1x1x2", ""), ("2x2x2", "--precision bf16"),
        ("1x2x2", "--schedule gpipe --precision fp16"), ("3x1x2", "--recompute block"),
        ("2x1x2", "--micro-batch 2 --sequence-parallel"), ("1x2x2", "--micro-batch 3 --sequence-parallel --schedule zb-h1"),
        ("2x1x1", "--micro-batch 3 --zero 3 --offload params")])]
if name == "mesh_mlp":  # one row per sample, which cannot be scattered
    equal = [row for row in equal if not ("--bitwise" in row and "--sequence-parallel" in row)]
if name == "resnet":  # its optimizer has no offload, and its rows are never scattered
    equal = [row for row in equal if "--sequence-parallel" not in row and "--offload" not in row]
    # Statistics within a micro-batch, of it, and over replicas.
    equal += [f"--mesh {mesh} --micro-batch {micro} --global-batch 16 --bn-samples {samples} --zero {number % 4} {more}"
              for number, (mesh, micro, samples, more) in enumerate([
                  ("1x1x1", 4, 2, ""), ("2x1x1", 4, 4, "--recompute block"), ("2x1x1", 4, 8, ""),
                  ("4x1x1", 2, 4, ""), ("4x1x1", 2, 8, "--precision bf16"), ("2x2x1", 2, 4, "--recompute block"),
                  ("2x2x1", 4, 8, "--schedule zb-h1"), ("4x2x1", 2, 8, "--precision fp16"),
                  ("1x4x1", 4, 2, "--schedule gpipe"), ("2x2x2", 4, 8, "--schedule interleaved")])]
refused = {"--mesh 5x1x1": "is not a multiple of micro-batch 1 x dp 5",
           "--mesh 1x1x3": "tp=3 does not divide",
           "--mesh 1x2x1 --schedule interleaved --chunks 4": "Every virtual stage needs a layer",
           "--mesh 2x1x1 --bitwise --reduce-dtype bf16": "bitwise with",
           "--mesh 2x1x2 --recompute selective": "Valid: off, block, block-split"}
if name == "resnet":
    del refused["--mesh 1x1x3"], refused["--mesh 1x2x1 --schedule interleaved --chunks 4"]  # they fit
    refused["--mesh 2x1x1 --micro-batch 2 --bn-samples 8"] = "statistics of 8 samples, with micro-batches of 2 on 2 repl"
    refused["--mesh 1x1x2 --sequence-parallel"] = "sequence-parallel"
    refused["--mesh 2x1x1 --bitwise"] = "bitwise with a model that has buffers"
    refused["--data nowhere.bin"] = "nowhere.bin"
if name == "llama":
    del refused["--mesh 2x1x2 --recompute selective"]
    equal += [f"--recompute selective --mesh {mesh}" for mesh in (
        "1x1x1", "2x2x2", "2x1x2", f"1x2x2 --zero 3 --schedule zb-h1 {llama3}", "1x1x1x2 --context 16",
        "1x1x2 --tp-pieces 4 --sequence-parallel --micro-batch 2", "2x1x1 --bitwise --micro-batch 3", "1x1x2 --bitwise --tp-slices 2",
        "2x2x2 --qk-norm all --zero 3 --sequence-parallel --micro-batch 2 --global-batch 8", "2x1x2 --qk-norm head --precision fp16",
        "1x1x2x1x2 --sequence-parallel --experts 4 --shared-experts 2 --shared-gate",
        "2x2x1 --experts 4 --shared-experts 1 --zero 2 --precision bf16")]
    equal += [f"--mesh 2x2x2 --zero 1 {llama3}", f"--mesh 1x2x2 --zero 3 --schedule interleaved {llama3}",
              f"--mesh 2x1x2 --zero 3 --sequence-parallel {llama3}"]
    shapes = "--head-dim 6 --qkv-bias --qk-norm"
    equal += [f"--mesh {mesh} {shapes} {norm} {more}" for mesh, norm, more in [
        ("1x1x2", "head", ""), ("1x1x2", "all", ""), ("2x2x2", "head", "--zero 3 --sequence-parallel --micro-batch 2 --global-batch 8"),
        ("1x2x2", "all", "--sequence-parallel --micro-batch 2 --recompute block"), ("1x1x2", "all", "--precision fp16"),
        ("1x1x2", "head", "--precision bf16 --sequence-parallel"), ("2x1x1", "head", "--bitwise --micro-batch 3"),
        ("1x2x1", "all", "--bitwise --micro-batch 2 --zero 1")]]
    after = "--norms-after --qk-norm all"
    equal += [f"--mesh {mesh} {more}" for mesh, more in [
        ("2x2x2", "--window 3 --zero 2"), ("1x1x1x2x1", "--window 5 --cp-form heads --context 16"),
        ("1x1x2", "--window 2 --recompute selective --sequence-parallel --micro-batch 2"), ("2x1x1", "--window 3 --bitwise --micro-batch 3"),
        ("2x2x2", f"{after} --zero 3 --sequence-parallel --micro-batch 2 --global-batch 8"), ("1x1x2", f"{after} --recompute selective"),
        ("1x2x2", f"{after} --schedule zb-h1 --precision bf16"), ("2x1x1", f"{after} --bitwise --micro-batch 3"),
        ("1x1x2", f"{after} --recompute selective --tp-pieces 2 --sequence-parallel --micro-batch 2"),
        ("1x1x2x2", "--window 5 --cp-form gather --context 16 --sequence-parallel"), ("1x1x2x1", f"{after} --context 16"),
        ("2x2x2x1", f"{after} --window 5 --cp-form gather --context 16 --zero 2")]]
    refused["--norms-after --experts 4"] = "norms-after with experts"
    equal += ["--mesh 1x1x2x1x2 --sequence-parallel --experts 4 --shared-experts 2 --shared-gate --qkv-bias",
              "--mesh 2x1x1 --bitwise --micro-batch 3 --experts 4 --shared-experts 1 --shared-gate --qk-norm head"]
    refused["--capacity 1"] = "capacity=1.0 without experts"
    refused["--experts 4 --dense-layers 2"] = "dense-layers=2 of 2 layers"
    refused["--head-dim 5"] = "heads=4 with width=16, kv-heads=2, head-dim=5"
    refused["--mesh 1x1x2 --bitwise --tp-slices 2 --qk-norm head"] = "whole_always_summed"
    refused["--mesh 1x1x2 --bitwise --tp-slices 2 --qk-norm all"] = "leave"
    equal += [f"--mesh {mesh} --zero {zero} --document-end . {more}" for mesh, zero, more in [  # ragged sequences
        ("2x2x1", 2, "--micro-batch 2"), ("2x2x2", 3, "--sequence-parallel --micro-batch 2 --global-batch 8"),
        ("1x2x2", 0, "--schedule zb-h1 --recompute block")]]
    refused["--document-end ca"] = "document-end=`ca` is no token"
    refused["--rope-low-turns 5"] = "rope-low-turns=5 with rope-high-turns=4"
    refused["--heads 6"] = "heads=6 with width=16, kv-heads=2"
    refused["--heads 2 --kv-heads 4"] = "Expected width to be a multiple of 2 x heads"


def parity(more, folder):
    """Exit code, and all that was printed."""
    done = subprocess.run([program.resolve(), "parity", *flags.split(), *more.split()], cwd=folder, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60,
                          env=dict(os.environ, OMP_NUM_THREADS="1", COLUMNS="200"))
    return done.returncode, done.stdout


failures = 0
with tempfile.TemporaryDirectory(prefix="triax-meshes-") as folder:
    (pathlib.Path(folder) / "text.txt").write_text(some_text())
    for more, code, part in [(row, 0, "\nEQUAL: ") for row in equal] + [(row, 78, refused[row]) for row in refused]:
        got, said = parity(more, folder)
        right = got == (66 if "nowhere" in more else code) and part in said
        print(f"{'ok' if right else 'FAILED'}  {more}" + ("" if right else f"\nexit code {got}:\n{said}"), flush=True)
        failures += not right
sys.exit(f"{failures} failed" if failures else 0)
