"""evaluate_test.py MINIGPT MPIRUN LLAMA RESNET: `evaluate` finds the loss that training found, on any mesh, and that of a whole text.

MPIRUN may be empty: then ranks are threads only."""

import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

from minigpt_program import RANKS_SHARING_CORES, mpirun, some_text, words

minigpt, launcher, llama, resnet = sys.argv[1:5]
MODEL = dict(layers=4, heads=4, width=32, context=16, steps=20, micro_batch=4, warmup=5, lr=0.01)
MESHES = (dict(), dict(dp=2), dict(pp=2), dict(tp=2, sequence_parallel=True), dict(cp=2), dict(dp=2, zero=3), dict(pp=2, tp=2),
          dict(dp=2, pp=2, tp=2, zero=2))
fixture = pathlib.Path(__file__).resolve().parents[2] / "fixtures/bpe"
failures = []


def check(name, ok, *seen):
    print(f"{'ok' if ok else 'FAILED'}  {name}", flush=True)
    if not ok:
        failures.append(name)
        print(*(f"    {s!r}" for s in seen), sep="\n", flush=True)


def run(code, *command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=RANKS_SHARING_CORES)
    if done.returncode != code:
        check(f"exit code {code} of {' '.join(map(str, command))}", False, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def found(said):
    """Loss, perplexity, number of targets."""
    match = re.search(r"^loss (\S+)  perplexity (\S+)  over (\d+) targets of \d+ samples?$", said, re.M)
    return tuple(map(float, match.groups())) if match else (math.nan,) * 3


def evaluate(**flags):
    ranks = math.prod(flags.get(axis, 1) for axis in ("dp", "pp", "cp", "tp"))
    return run(0, minigpt, "evaluate", *words(checkpoint=folder / "run", data=text, comm="threads", ranks=ranks, **flags))


with tempfile.TemporaryDirectory() as path:
    folder = pathlib.Path(path)
    text = folder / "text"
    text.write_text(some_text())
    run(0, minigpt, "train", *words(**MODEL, data=text, out=folder / "run"))
    trained = json.loads((folder / "run/metrics.jsonl").read_text().splitlines()[-1])["val_loss"]

    whole, perplexity, targets = found(evaluate())
    check("a whole text: every token but the first is a target",
          targets == len(some_text()) - 1, targets, len(some_text()))
    check("perplexity is e to the loss", math.isclose(perplexity, math.exp(whole), rel_tol=1e-6), whole, perplexity)
    for mesh in MESHES:
        loss, _, count = found(evaluate(val_fraction=0.1, **mesh))
        check(f"{mesh}: the loss of training's validation", abs(loss - trained) < 1e-5 and count < targets / 5, loss, trained)
        loss, _, count = found(evaluate(micro_batch=3, **mesh))
        check(f"{mesh}: the loss of the whole text", abs(loss - whole) < 1e-5 and count == targets, loss, whole)
    check("bf16", abs(found(evaluate(precision="bf16"))[0] - whole) < 0.02)
    if launcher:
        said = run(0, *mpirun(launcher, 2), minigpt, "evaluate", *words(checkpoint=folder / "run", data=text, tp=2))
        check("processes", abs(found(said)[0] - whole) < 1e-5 and said.count("perplexity") == 1, said)

    # Answers alone: sums of all endings' losses tell which one a model chooses.
    words_ = some_text().split()
    questions = [dict(ctx=words_[i], endings=[words_[i + 1], words_[i + 7], words_[i + 12] + " " + words_[i + 3]], label=i % 3)
                 for i in range(0, 400, 5)]
    questions = [q for q in questions if max(map(len, q["endings"])) + len(q["ctx"]) <= MODEL["context"]][:12]
    (folder / "choices").write_text("\n".join(map(json.dumps, questions)))
    right = dict(acc=0, acc_norm=0)
    for q in questions:
        losses = []
        for ending in q["endings"]:
            (folder / "one").write_text(json.dumps(dict(prompt=q["ctx"], completion=" " + ending)))
            mean, _, count = found(run(0, minigpt, "evaluate", *words(checkpoint=folder / "run", chat="plain", data=folder / "one")))
            losses.append((mean * count, mean))
            check("an answer has its tokens as targets", count == len(ending) + 1, count)
        for i, name in enumerate(right):
            right[name] += min(range(3), key=lambda e: losses[e][i]) == q["label"]
    (folder / "one").unlink()
    check("some choices are right, some wrong", 0 < right["acc"] < len(questions), right)
    for mesh in (mesh for mesh in MESHES if "cp" not in mesh):
        ranks = math.prod(mesh.get(axis, 1) for axis in ("dp", "pp", "tp"))
        said = run(0, minigpt, "evaluate", *words(checkpoint=folder / "run", choices=folder / "choices", comm="threads", ranks=ranks,
                                                  micro_batch=6, **mesh))
        scores = {name: float(re.search(rf" {name} (\S+)", said)[1]) * len(questions) for name in right}
        check(f"{mesh}: choices", all(abs(scores[name] - right[name]) < 1e-6 for name in right), scores, right)
    said = run(78, minigpt, "evaluate", *words(checkpoint=folder / "run", choices=folder / "choices", data=text))
    check("questions and a text", "choices=" in said and "Leave one out" in said, said)
    said = run(78, minigpt, "evaluate", *words(checkpoint=folder / "run", choices=folder / "choices", micro_batch=2))
    check("a part of a question", "whole questions of 3 endings" in said, said)
    said = run(78, minigpt, "evaluate", *words(checkpoint=folder / "run", choices=folder / "choices", cp=2, comm="threads", ranks=2,
                                               micro_batch=3))
    check("a part of each text", "leave --bitwise and --cp out" in said, said)
    (folder / "choices").unlink()
    talks = [dict(prompt=" ".join(words_[i:i + 3]), completion=" ".join(words_[i + 3:i + 4 + i % 3])) for i in range(40)]
    (folder / "talks").write_text("\n".join(map(json.dumps, talks)))
    for mesh in ("2x2x2 --zero 2", "1x1x2x2"):  # replicas have other numbers of targets
        said = run(0, minigpt, "parity", "--chat", "plain", "--data", folder / "talks", "--context", "32", "--tokenizer", f"gpt2:{fixture}",
                   "--mesh", *mesh.split())
        check(f"{mesh}: parity on answers alone", "EQUAL" in said, said)
    (folder / "talks").unlink()

    check("nothing is written", sorted(p.name for p in folder.iterdir()) == ["run", "text"])
    said = run(64, minigpt, "evaluate")
    check("without a checkpoint", "checkpoint is not given" in said and "minigpt evaluate --checkpoint" in said, said)
    said = run(66, minigpt, "evaluate", "--checkpoint", folder / "none")
    check("a checkpoint that is not there", "none" in said, said)
    said = run(78, minigpt, "evaluate", *words(checkpoint=folder / "run", data=text, layers=3))
    check("another model", "layers" in said, said)
    for verb, more in ("train", dict(out=folder / "none", steps=1)), ("parity", {}), ("simulate", dict(dp=2)):
        said = run(78, minigpt, verb, *words(data=text, val_fraction=1, layers=2, heads=2, width=8, context=8, **more))
        check(f"{verb}: nothing to train on", "no samples" in said, said)
    (folder / "short").write_text("t")
    said = run(65, minigpt, "evaluate", *words(checkpoint=folder / "run", data=folder / "short"))
    check("a text of one character", "too few to validate on" in said, said)
    said = run(64, minigpt, "evaluate", *words(checkpoint=folder / "run", lr=1))
    check("a flag of training", "--lr" in said, said)

    run(0, llama, "train", *words(**MODEL, hidden=48, kv_heads=2, data=text, out=folder / "llama"))
    check("triax-llama", "perplexity" in run(0, llama, "evaluate", "--checkpoint", folder / "llama", "--data", text))
    run(0, resnet, "train", *words(width=4, steps=2, micro_batch=16, bn_samples=16, out=folder / "resnet"))
    said = run(0, resnet, "evaluate", *words(checkpoint=folder / "resnet", micro_batch=16))
    check("triax-resnet: its scores, and no perplexity", "top1" in said and "perplexity" not in said, said)

sys.exit(1 if failures else 0)
