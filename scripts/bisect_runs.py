#!/usr/bin/env python3
"""Finds the first step, and in it the first tensor and its ranks, in which two runs of any meshes part; exit code 0 if they
are equal as far as both go, else 1.

Runs that were trained with --certify are compared by their certificates, others by checkpoints of the same steps. Of one run
alone, its certificate is checked: the chain of its lines, and the weights and optimizer state in its checkpoints."""

import collections
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "readers"))
from compare_checkpoints import PLACES, TYPES, Checkpoint, brief, facts_of, numpy, values_differ  # noqa: E402
from run_files import Arguments, Fail, expect, literals, member, parse, path, printable, run, small_text  # noqa: E402

FILE, WORD = "certificate.jsonl", (1 << 64) - 1
# Settings that say where and when a run was trained and what it left behind. With --bitwise they change no bit.
WITHOUT_EFFECT = PLACES | set(
    "first step|memory foreseen|certify|check-replicas|comm|ranks|keep|keep-best|save-every|save-async|val-every|ledger|"
    "profile|tensorboard|workers|resume-changed|steps|device-map".split("|"))
MESH = set("dp|pp|tp|cp|ep|zero|chunks|placement|schedule|micro-batch|sequence-parallel|offload|offload-dir|recompute|"
           "overlap-layers|tp-pieces|cp-form|model parameters".split("|"))
SHOWN = 8  # names in a list


# -- The definitions (docs/runs.md#certificates), once more


def mixed(x):
    """The finalizer of SplitMix64."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & WORD
    x = (x ^ x >> 27) * 0x94D049BB133111EB & WORD
    return x ^ x >> 31


def hash_of(data, size):
    """The hash of a whole tensor: of the bits of its elements, which have `size` bytes, and of their places."""
    if numpy:
        total, step = numpy.uint64(0), 1 << 20
        for at in range(0, len(data), size * step):
            bits = numpy.frombuffer(bytes(data[at:at + size * step]), f"<u{size}").astype("u8")
            places = numpy.arange(1, len(bits) + 1, dtype="u8") + numpy.uint64(at // size)
            with numpy.errstate(over="ignore"):
                x = bits + places * numpy.uint64(0x9E3779B97F4A7C15)
                x = (x ^ x >> numpy.uint64(30)) * numpy.uint64(0xBF58476D1CE4E5B9)
                x = (x ^ x >> numpy.uint64(27)) * numpy.uint64(0x94D049BB133111EB)
                total += (x ^ x >> numpy.uint64(31)).sum(dtype="u8")
        return int(total)
    total = 0
    for i in range(len(data) // size):
        bits = int.from_bytes(data[size * i:size * (i + 1)], "little")
        total += mixed(bits + (i + 1) * 0x9E3779B97F4A7C15 & WORD)
    return total & WORD


def chained(before, text):
    """The chain of a line: FNV-1a of the chain before it and of the line up to its own."""
    value = 14695981039346656037
    for byte in (before + text).encode():
        value = (value ^ byte) * 1099511628211 & WORD
    return f"{value:016x}"


# -- Reading

Line = collections.namedtuple("Line", "step text fields chain")


class Certificate:
    """The lines of a run by step."""

    def __init__(self, place):
        self.path, self.lines = f"{place}/{FILE}", {}
        with open(self.path, "rb") as file:
            for number, raw in enumerate(file, 1):
                if raw.endswith(b"\n"):  # else a run that was killed, or still writes it
                    self.take(raw[:-1], f"{self.path}:{number}")
        expect(self.lines, 65, f"{self.path}: it has no line")
        first = next(iter(self.lines.values()))
        self.order = {name: i for i, name in enumerate(member(first.fields, "order", list, self.path + ":1"))}

    def take(self, raw, source):
        fields = parse(raw, source)
        step, chain = member(fields, "step", int, source), member(fields, "chain", str, source)
        member(fields, "hashes", dict, source), member(fields, "apart", list, source)
        self.lines[step] = Line(step, raw.decode().rsplit(',"chain":', 1)[0], fields, chain)

    def broken(self):
        """The first step whose chain does not follow from the line before; None if there is none."""
        before = ""
        for line in self.lines.values():
            if chained(before, line.text) != line.chain:
                return line.step
            before = line.chain
        return None


def steps_of(place):
    """Steps with a checkpoint."""
    names = os.listdir(place) if os.path.isdir(place) else []
    return sorted(int(name[5:]) for name in names if re.fullmatch(r"step-(0|[1-9]\d{0,18})", name, re.ASCII))


def settings_of(place):
    found = literals(small_text(f"{place}/settings.txt"))
    if steps := steps_of(place):
        found |= facts_of(Checkpoint(f"{place}/step-{steps[-1]}"))
    return {name: value for name, value in found.items() if not name.startswith("state: ") and name != "step"}


# -- Ranks

AXES = ["pp", "dp", "ep", "cp", "tp"]  # of a mesh, the last one among neighbours


def holders(place, step, name):
    """The ranks that hold a tensor in a step, as the next checkpoint says, with what they hold of it; and the mesh."""
    steps = steps_of(place)
    if not steps:
        return {}, {}
    checkpoint = Checkpoint(f"{place}/step-{min((s for s in steps if s >= step), default=steps[-1])}")
    settings = literals(checkpoint.state.get("settings", ""))
    mesh = {axis: int(settings[axis]) for axis in AXES if settings.get(axis, "").isdigit()}
    ranks = {}
    for part in checkpoint.tensors.get(name, {}).get("parts", []):
        owner = re.fullmatch(r"\D*(\d+)\D*", checkpoint.files[part["file"]][0])
        if owner:
            cut = f"{part['slice'][1]} to {sum(part['slice'][1:]) - 1} of dim {part['slice'][0]}" if "slice" in part else "all"
            ranks[int(owner[1])] = cut + (f", of that elements {part['range'][0]} to {part['range'][1] - 1}" if "range" in part else "")
    return ranks, mesh


def place_of(rank, mesh):
    places = {}
    for axis in reversed(AXES):
        rank, places[axis] = divmod(rank, mesh.get(axis, 1))
    return ", ".join(f"{axis} {places[axis]}" for axis in ("dp", "pp", "ep", "cp", "tp") if axis in ("dp", "pp", "tp") or mesh.get(axis, 1) > 1)


# -- Comparing


def some(names):
    rest = len(names) - SHOWN
    return ", ".join(printable(name) for name in names[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def compare_settings(a, b):
    """Prints settings that differ. Returns those that explain other numbers, those of the mesh, and if both are --bitwise."""
    one, two = settings_of(a), settings_of(b)
    differ = [name for name in sorted(one.keys() & two.keys() - WITHOUT_EFFECT) if one[name] != two[name]]
    if differ:
        print("settings that differ:")
    for name in differ:
        print(f"  {printable(name)}: {brief(one[name])} and {brief(two[name])}")
    exact = one.get("bitwise") == two.get("bitwise") == "true"
    return [name for name in differ if name not in MESH], [name for name in differ if name in MESH], exact


def parted(one, two, order):
    """By kind: the names of tensors that differ in two lines, or between ranks of one run, in forward order."""
    a, b = one.fields["hashes"], two.fields["hashes"]
    keys = {key for key in a.keys() | b.keys() if a.get(key) != b.get(key)}
    keys |= {str(text).rpartition(" of rank ")[0] for line in (one, two) for text in line.fields["apart"]}
    kinds = collections.defaultdict(list)
    for key in sorted(keys, key=lambda key: (order.get(key.rpartition("/")[0], len(order)), key)):
        name, _, kind = key.rpartition("/")
        kinds[kind].append(name)
    return kinds


def culprit(kinds, one, two, common):
    """What is the first to differ within a step, the tensor that is nearest to the cause, and why."""
    loss = one.fields.get("loss") != two.fields.get("loss")
    if names := kinds["read"]:
        return "the weights that the step read", names[0], f"{some(names)}: changed since the update before"
    if names := kinds["gradient"]:
        if loss:
            return "the loss", "", (f"{one.fields.get('loss')} and {two.fields.get('loss')}, with the same weights: the forward "
                                    f"pass, so its data or an activation; gradients of {len(names)} of {common} tensors follow")
        return "a gradient", names[-1], (f"gradients of {some(names)}, with the same weights and loss; backward comes to "
                                         f"{printable(names[-1])} first")
    rest = [kind for kind in sorted(kinds) if kinds[kind]]
    if not rest:
        return "the loss", "", ""
    names = kinds["weight"] or kinds[rest[0]]
    rates = [line.fields.get("lr") for line in (one, two)]
    if "loss" not in one.fields:
        return "the state that the runs began with", names[0], some(names)
    cause = f", at learning rates {rates[0]} and {rates[1]}" if rates[0] != rates[1] else ""
    return "the update", names[0], f"{', '.join(rest)} of {some(names)}, from the same weights and gradients{cause}"


def tell_ranks(place, step, name, line):
    """Prints which ranks hold a tensor, and which of them hold other bits than they should. Returns one to look at."""
    ranks, mesh = holders(place, step, name)
    told = [f"rank {rank} ({place_of(rank, mesh)}) holds {what}" for rank, what in sorted(ranks.items())]
    if told:
        print(f"  {place}: of {printable(name)}, " + "; ".join(told[:SHOWN]) + " and more" * (len(told) > SHOWN))
    apart = [printable(text) for text in line.fields["apart"]]
    if apart:
        print(f"  {place}: other bits than a lower rank, which should hold the same, has: {some(apart)}")
    faulty = [text.rpartition(" ")[2] for text in line.fields["apart"]]
    return int(faulty[0]) if faulty and faulty[0].isdigit() else min(ranks, default=0)


def replays(a, b, step, ranks, program):
    commands = []
    for place, rank in zip((a, b), ranks):
        before = [s for s in steps_of(place) if s < step]
        if before:
            commands.append(f"  {program} replay --checkpoint {place}/step-{before[-1]} --step {step} --rank {rank}")
    if commands:
        print("look inside the step, at activations too:")
        print("\n".join(commands))


def comparable(one, two):
    """What two lines of a step share: the first line of a run that began with a checkpoint has its state alone."""
    if ("loss" in one.fields) == ("loss" in two.fields):
        return one, two
    shared = one.fields["hashes"].keys() & two.fields["hashes"].keys()

    def cut(line):
        hashes = {key: line.fields["hashes"][key] for key in sorted(shared)}
        return line._replace(text=str(hashes), fields={"hashes": hashes, "apart": line.fields["apart"]})
    return cut(one), cut(two)


def compare_certificates(a, b, args):
    one, two = Certificate(a), Certificate(b)
    common = sorted(one.lines.keys() & two.lines.keys())
    expect(common, 65, f"bisect: {a} and {b} certify no common step")
    for certificate in one, two:
        broken = certificate.broken()
        expect(broken is None, 65, f"{certificate.path}: the chain does not follow in step {broken}: a line was changed, or is gone")
    causes, mesh, exact = compare_settings(a, b)
    equal = None
    for step in common:
        x, y = comparable(one.lines[step], two.lines[step])
        if x.text != y.text:
            break
        equal = step
    else:
        print(f"EQUAL: loss, gradients, weights and optimizer state of {len(common)} common steps, up to step {equal}, "
              f"chain {one.lines[equal].chain}")
        return 0
    before = f"; equal up to step {equal}" if equal is not None else ""
    print(f"DIFFERENT: the runs part in step {step}{before}")
    what, name, why = culprit(parted(x, y, one.order), x, y, len(one.order))
    print(f"  {what} parts first" + (f": {printable(name)}" if name else ""))
    if why:
        print(f"  {why}")
    ranks = [tell_ranks(place, step, name, line) for place, line in ((a, x), (b, y))]
    tell_cause(causes, mesh, exact)
    replays(a, b, step, ranks, args.program)
    return 1


def tell_cause(causes, mesh, exact):
    if causes:
        print(f"  The settings {some(causes)} differ, which explains it.")
    elif mesh and not exact:
        print("  The runs are on different meshes and not --bitwise: sums in another order are rounded otherwise, so that bits part\n"
              "  at once. Train both with --bitwise, or compare the values in checkpoints: triax-compare-checkpoints.")


def compare_checkpoints(a, b, args):
    common = sorted(set(steps_of(a)) & set(steps_of(b)))
    expect(common, 66, f"bisect: {a} and {b} have neither certificates nor checkpoints of a common step\n"
           "  Train with --certify, or with --save-every and --keep.")
    causes, mesh, exact = compare_settings(a, b)
    equal = None
    for step in common:
        x, y = (Checkpoint(f"{place}/step-{step}") for place in (a, b))
        names = [name for name in sorted(x.tensors | y.tensors) if name not in x.tensors or name not in y.tensors
                 or (why := difference(x, y, name))]
        if names:
            break
        equal = step
    else:
        print(f"EQUAL: weights and optimizer state of {len(common)} common checkpoints, up to step {equal}")
        return 0
    print(f"DIFFERENT: the runs part between step {equal or 0} and step {step}; --certify would say in which step, and where")
    print(f"  {some(names)}")
    for name in names[:SHOWN]:
        if name in x.tensors and name in y.tensors:
            print(f"  {printable(name)}: {difference(x, y, name)}")
    tell_cause(causes, mesh, exact)
    return 1


def difference(x, y, name):
    s, t = x.tensors[name], y.tensors[name]
    if (s["dtype"], s["shape"]) != (t["dtype"], t["shape"]):
        return f"{s['dtype']} {s['shape']} and {t['dtype']} {t['shape']}"
    return values_differ(s["dtype"], x.whole(name), y.whole(name))


def verify(place):
    expect(os.path.isfile(f"{place}/{FILE}"), 66, f"bisect: {place}: there is no {FILE}\n  Train with --certify.")
    certificate = Certificate(place)
    broken = certificate.broken()
    if broken is not None:
        print(f"DIFFERENT: the chain does not follow in step {broken}: a line was changed, or is gone")
        return 1
    checked = []
    for step in steps_of(place):
        if step not in certificate.lines:
            continue
        checkpoint, hashes = Checkpoint(f"{place}/step-{step}"), certificate.lines[step].fields["hashes"]
        for name in sorted(checkpoint.tensors):
            tensor, _, kind = name.partition("@")
            found = hash_of(checkpoint.whole(name), TYPES[checkpoint.tensors[name]["dtype"]][1])
            if hashes.get(f"{tensor}/{kind or 'weight'}") != f"{found:016x}":
                print(f"DIFFERENT: {printable(name)} in {checkpoint.path} is not what the certificate says")
                return 1
        checked.append(str(step))
    last = list(certificate.lines.values())[-1]
    print(f"EQUAL: the chain of {len(certificate.lines)} lines up to step {last.step}, {last.chain}; weights and optimizer state in "
          f"checkpoints of {'steps ' + some(checked) if checked else 'no step'}")
    return 0


def main():
    arguments = Arguments("triax-bisect-runs", __doc__)
    arguments.add_argument("A", type=path, help="run directory")
    arguments.add_argument("B", type=path, nargs="?", help="another; without it, the certificate of A is checked")
    arguments.add_argument("--program", type=path, default="minigpt", help="in the commands that it prints (minigpt)")
    args = arguments.parse_args()
    for place in filter(None, (args.A, args.B)):
        expect(os.path.isdir(place), 66, f"bisect: {place}: no such directory")
    if not args.B:
        return verify(args.A)
    both = all(os.path.isfile(f"{place}/{FILE}") for place in (args.A, args.B))
    return (compare_certificates if both else compare_checkpoints)(args.A, args.B, args)


if __name__ == "__main__":
    run(main)
