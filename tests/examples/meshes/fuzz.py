"""fuzz.py PROGRAM DRAWS [SEED [STEPS]]: `PROGRAM parity` with flags drawn at random, of minigpt, llama or resnet: meshes of
up to 16 ranks, ZeRO, schedules, placements, recomputation, precisions, offload, optimizers, parameter groups,
averages of weights and odd sizes; a third of them with equal bits. With STEPS all of them, for so many steps, and
24 meshes with each ZeRO stage too. Prints each command line that does not say EQUAL, and what it says; exit status 1
if there is one. Progress is on stderr."""

import concurrent.futures
import itertools
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

SECONDS = 600


def minigpt(pick, tp, layers):
    heads = tp * pick.choice([1, 2])
    return {"--heads": heads, "--width": heads * pick.choice([4, 7, 10]), "--layers": layers,
            "--context": pick.choice([6, 12, 32, 40, 64]), "--dropout": pick.choice([0, 0.1, 0.3]), "--vocab": pick.choice([0, 19, 32])}


def llama(pick, tp, layers):
    kv_heads = tp * pick.choice([1, 2])
    heads = kv_heads * pick.choice([1, 2, 3])
    return {"--heads": heads, "--kv-heads": kv_heads, "--width": heads * pick.choice([4, 6, 10]), "--layers": layers,
            "--hidden": tp * pick.choice([6, 9, 16]), "--context": pick.choice([6, 12, 32, 40, 64])}


def resnet(pick, micro, dp):
    samples = [n for n in range(1, micro + 1) if micro % n == 0] + [micro * n for n in range(2, dp + 1) if dp % n == 0]
    return {"--width": pick.choice([3, 4]), "--blocks": 1, "--bn-samples": pick.choice(samples), "--lr": 0.01,
            "--momentum-form": pick.choice(["heavy-ball", "nesterov"])}


def optimizer(pick):
    """An update rule, and what it keeps in host memory."""
    rule = pick.choice(["adamw", "adamw", "adamw", "lion", "muon"])
    return {"--optimizer": rule, "--offload": pick.choice(["off", "optimizer", "params"]) if rule == "adamw" else "off"}


def bitwise(pick, program, flags, tp, cp, sequence):
    """The same with --bitwise."""
    slices = pick.choice([tp, flags["--heads"] if program == "minigpt" else tp])
    parts = 2 * cp if cp > 1 else pick.choice([1, 1, 2])
    if flags["--context"] % (slices * parts):
        flags["--context"] = slices * parts * pick.choice([1, 2])
    return {"--tp-slices": slices, "--row-parts": parts}


def context(pick, program, flags, tp, cp, exact):
    """The same with rows over cp."""
    form = pick.choice(["heads", "gather"] if exact else ["ring", "heads", "gather"])
    if form == "heads":  # each rank attends with whole key-value heads
        more = {"--heads": flags["--heads"] * cp, "--width": flags["--width"] * cp}
        flags |= more | ({"--kv-heads": flags["--kv-heads"] * cp} if program == "llama" else {})
    return {"--cp-form": form, "--context": 2 * cp * tp * pick.choice([1, 3, 8])}


def experts(pick, ep):
    """Mixtures in the place of MLPs, whose experts `ep` divides."""
    count = ep * pick.choice([1, 2, 3])
    return {"--experts": count, "--top-k": pick.randint(1, min(3, count)), "--balance": pick.choice([0, 0.1]),
            "--router-z": pick.choice([0, 0.01]), "--capacity": pick.choice([0, 0, 0.5, 1.25]),
            "--balance-bias": pick.choice([0, 0.01]), "--balance-over": pick.choice(["sequence", "sequence", "step"]),
            "--router-score": pick.choice(["softmax", "sigmoid"]), "--router-weights": pick.choice(["normalized", "plain"]),
            "--shared-experts": pick.choice([0, 0, 1]), "--dense-layers": pick.choice([0, 0, 1])}


def equal_bits(text):
    """24 meshes with each ZeRO stage."""
    schedules, number = ["1f1b", "gpipe", "zb-h1"], 0
    for dp, pp, tp, zero in itertools.product([1, 2, 3, 4], [1, 2], [1, 2, 4], range(4)):
        number += 1
        yield (f"--bitwise --tp-slices 4 --mesh {dp}x{pp}x{tp} --zero {zero} --schedule {schedules[number % 3]} "
               f"--micro-batch {[1, 2, 4, 1][number % 4] if dp != 4 else 1 + number % 3} --global-batch 24 --data {text} "
               f"--layers 2 --heads 4 --width 64 --context {32 * (tp if number % 2 else 1)} --recompute {['off', 'block'][number % 2]} "
               f"{'--sequence-parallel' * (number % 5 < 3)} {'--offload params' * (zero == 3 and number % 3 == 0)}").split()


def draw(pick, program, text, exact):
    """Flags of a model, a batch and a mesh that fit each other."""
    chance = pick.choice
    tp, pp, dp = chance([1, 1, 2, 3]), chance([1, 2, 3]), chance([1, 2, 3])
    cp = 1 if program == "resnet" else chance([1, 1, 1, 2, 2, 3, 4])
    if dp * pp * tp * cp > 16:
        dp = 1
    if pp * tp * cp > 16:
        pp = 1
    exact = program != "resnet" and (exact or chance([True, False, False]))
    mixture = program == "llama" and not (exact and tp > 1) and chance([True, False])
    ep = chance([1, 2, 2, 3, 4]) if mixture else 1
    if dp * pp * tp * cp * ep > 16:
        dp = pp = 1
    if tp * cp * ep > 16:
        ep = 1
    micro, layers, zero = chance([1, 2, 3]), pp * chance([2, 3]), chance([0, 1, 2, 3])
    schedule = chance(["gpipe", "1f1b", "interleaved", "zb-h1", "zb-interleaved", "zb-2p", "1f1b-v",
                       "v-min", "v-half", "zb-v", "dualpipev"])
    chunks = chance([1, 2]) if schedule.endswith("interleaved") else 2 if schedule.startswith("v-") or schedule.endswith("v") else 1
    inner = f"{ep}x{cp}x" if ep > 1 else f"{cp}x" if cp > 1 else ""
    flags = {"--mesh": f"{dp}x{pp}x{inner}{tp}", "--micro-batch": micro, "--global-batch": micro * chance([1, 2, 3, 5]) * dp * ep,
             "--steps": 2, "--seed": pick.randrange(1000), "--zero": zero, "--schedule": schedule, "--chunks": chunks,
             "--precision": chance(["fp32", "fp32", "bf16", "fp16"]), "--workers": chance([0, 0, 3]),
             "--groups": chance(["", "", "*norm*:decay=0;*:lr=0.5,decay=0.1", "*norm*:lr=3"])}
    if program == "resnet":
        flags |= resnet(pick, micro, dp) | {"--recompute": chance(["off", "block"]), "--offload": "off"}
        sequence = False
    else:
        sequence = tp > 1 and chance([True, False])
        flags |= {"minigpt": minigpt, "llama": llama}[program](pick, tp, layers)
        if sequence and flags["--context"] % tp:  # ranks share the rows of a sequence
            flags["--context"] = 96
        flags |= context(pick, program, flags, tp, cp, exact) if cp > 1 else {}
        flags |= optimizer(pick) | {"--data": text}
        flags |= experts(pick, ep) if mixture else {}
        flags["--label-smoothing"] = chance([0, 0, 0.1])
        recompute = ["off", "block", "selective", *["block-split"] * (tp > 1 and not sequence)]
        flags["--recompute"] = chance(recompute)
        if chance([True, False, False, False]):  # any number of blocks on each stage, none too
            counts = [0] * (pp * chunks)
            for _ in range(layers + (program == "llama")):  # its last norm is a layer
                counts[pick.randrange(len(counts))] += 1
            flags["--placement"] = ",".join(map(str, counts))
        flags |= bitwise(pick, program, flags, tp, cp, sequence) if exact else {}
    if flags["--offload"] == "params":
        flags["--zero"] = 3
        if chance([True, False]):
            flags["--offload-dir"] = os.path.dirname(text)
    if flags["--offload"] == "off":
        flags["--average"] = chance([0, 0.5])
    return [str(word) for flag in flags.items() if flag[1] != "" for word in flag] + [
        "--sequence-parallel"] * sequence + ["--bitwise"] * exact


def parity(program, flags):
    """What is wrong with it; nothing if it says EQUAL."""
    command = [program, "parity", *flags]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS,
                              env=dict(os.environ, OMP_NUM_THREADS="1"))
    except subprocess.TimeoutExpired:
        return f"{' '.join(command)}\n  no end after {SECONDS} s"
    if done.returncode == 0 and "\nEQUAL: " in done.stdout:
        return ""
    said = "\n  ".join((done.stdout + done.stderr).splitlines()[-6:])
    return f"{' '.join(command)}\n  exit status {done.returncode}\n  {said}"


def main(program, draws, seed="1", steps=""):
    pick, begun, wrong = random.Random(int(seed)), time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="triax-fuzz-") as folder:
        text = f"{folder}/text.txt"
        pathlib.Path(text).write_text("".join(chr(ord("a") + (i * i // 3 + i // 5) % 13) for i in range(600)))
        all_flags = [draw(pick, pathlib.Path(program).name.removeprefix("triax-"), text, steps != "") for _ in range(int(draws))]
        if steps:
            all_flags = [[*flags, "--steps", steps] for flags in [*equal_bits(text), *all_flags]]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for number, problem in enumerate(pool.map(lambda flags: parity(program, flags), all_flags), 1):
                if problem:
                    wrong += 1
                    print(problem, flush=True)
                if number % 20 == 0:
                    print(f"{number} of {len(all_flags)}, {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    print(f"{len(all_flags) - wrong} of {len(all_flags)}, {draws} drawn by seed {seed}, train as one rank")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
