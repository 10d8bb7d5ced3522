"""nccl_rules_test.py MINIGPT [--all]: no pipeline schedule hangs under the rules of NCCL (nccl_rules.py).

Plays every named schedule, and some that `schedule --search` finds, on pp 2 to 8 with 1 to 4 pp + 1 micro-batches: tp 1 and 2,
room for 0, 1 and 2 messages, a host that waits for the compute stream or never; and inference. Rules stricter than the code's
have to hang, which shows that the test can fail. Without --all it plays a selection, in seconds; with it everything, and
counts what hangs under the stricter rules.
"""

import collections
import gc
import itertools
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from nccl_rules import Action, Play, Rules, Shape, forward_only, read

minigpt, plays_all = sys.argv[1], "--all" in sys.argv[2:]
STAGES = range(2, 9) if plays_all else (2, 3, 4, 8)
CHUNKS = (None, 2, 3) if plays_all else (None, 3)  # None: as many as the schedule has by default
ROOMS = (0, 1, 2)
RULES = [Rules(tp=tp, host=host) for tp, host in itertools.product((1, 2), ("free", "compute"))]
STRICTER = {"the host waits for the device at first passes": Rules(host="first"),
            "the host waits for the device everywhere": Rules(host="device"),
            "launches in order, by their start": Rules(order="start"),
            "launches in order, by their end": Rules(order="completion")}
SEARCHES = [(stages, chunks, memory) for stages in (2, 3, 4) for chunks, memory in
            ((1, "1p"), (1, "1.5p"), (1, "2p"), (2, "1p"), (2, "1.25p"))]
failures = []
played = collections.Counter()


def expect(name, problem):
    print(f"{'FAILED' if problem else 'ok'}  {name}{': ' if problem else ''}{problem}", flush=True)
    if problem:
        failures.append(name)


def micro_batches(stages):
    if plays_all:
        return range(1, 4 * stages + 2)
    return sorted({1, stages - 1, stages, stages + 1, 2 * stages + 1, 3 * stages, 4 * stages + 1})


def schedule(*flags):
    return subprocess.run([minigpt, "schedule", *map(str, flags)], capture_output=True, text=True)


def named():
    """Returns the names that the program lists where it meets one that it does not know."""
    said = schedule("--schedule", "no-such-schedule").stderr
    found = re.search(r"expected one of: ([\w, -]+), or a file", said)
    expect("the program lists its schedules", "" if found and "1f1b" in found[1] else said)
    return found[1].split(", ") if found else []


def lists_of(name, stages, micros, chunks):
    """Returns the shape and lists; None if the schedule does not take as many chunks. Other refusals are failures."""
    flags = ["--chunks", chunks] if chunks else []
    done = schedule("--schedule", name, "--pp", stages, "--micros", micros, "--json", *flags)
    if done.returncode == 0:
        return read(done.stdout)
    if done.returncode != 78 or "a stage; expected" not in done.stderr:
        expect(f"{name}, pp {stages}, {micros} micro-batches", done.stderr)
    return None


def play(shape, lists, rules, trains=True):
    """Returns what goes wrong with any room, or nothing."""
    one = Play(shape, lists, rules, trains)
    for room in ROOMS:
        if room != one.rules.room:
            one.set_room(room)
        played["cases"] += 1
        if one.problem or one.hangs():
            played["deadlocks"] += 1
            circle = one.circle() if one.hangs() else []
            return "\n".join([f"{shape}, {one.rules}: {one.problem or 'deadlock'}", *circle])
    return ""


def rules_for(number):
    """Returns all rules, or one of them in turn where a selection is played."""
    return RULES if plays_all else [RULES[number % len(RULES)]]


def named_schedule(name, number):
    """Returns what goes wrong first."""
    seen = set()
    for stages, chunks in itertools.product(STAGES, CHUNKS):
        for micros in micro_batches(stages):
            found = lists_of(name, stages, micros, chunks)
            if not found:
                break
            if found[0] in seen:
                continue
            seen.add(found[0])
            played["schedules"] += 1
            number += 1
            for rules in rules_for(number):
                if problem := play(*found, rules):
                    return problem
            if plays_all:
                count_stricter(name, *found)
    return ""


hangs = collections.defaultdict(collections.Counter)  # by rule and schedule


def count_stricter(name, shape, lists):
    of = f"{name} of {shape.chunks} chunk{'s' if shape.chunks > 1 else ''}"
    for what, rules in STRICTER.items():
        hangs[what][of] += Play(shape, lists, rules).hangs()
        hangs[what][f"{of}, all"] += 1


def found_schedule(folder, stages, chunks, memory):
    path = folder / f"{stages}-{chunks}-{memory}.json"
    done = schedule("--search", "--pp", stages, "--micros", 2 * stages + 1, "--chunks", chunks, "--memory", memory,
                    "--hold", 0.5, "--tries", 300, "--save", path)
    if done.returncode:
        return done.stderr
    shape, lists = read(schedule("--schedule", path, "--json").stdout)
    played["schedules"] += 1
    return "".join(play(shape, lists, rules) for rules in RULES)


def inference(stages):
    """Rings of 1 to 4 chunks, and a V; the host reads a loss after every micro-batch or none."""
    for micros, (chunks, placement) in itertools.product(micro_batches(stages),
                                                         ((1, "ring"), (2, "ring"), (3, "ring"), (4, "ring"), (2, "v"))):
        shape = Shape(stages, chunks, micros, placement)
        for rules in RULES if plays_all else RULES[:2]:
            if problem := play(shape, forward_only(shape), rules, trains=False):
                return problem
    return ""


def must_hang(name, micros, rules, says):
    """On two stages. Returns what is wrong."""
    one = Play(*lists_of(name, 2, micros, None), rules)
    shown = "\n".join(one.circle()) if one.hangs() else "no deadlock"
    return "" if one.hangs() and says in shown and shown.count("waits for") > 2 else shown


def the_test_can_fail():
    for order in ("start", "completion"):
        expect(f"interleaved hangs with launches in order, by {order}",
               must_hang("interleaved", 5, Rules(order=order), "NCCL's order of launches"))
    expect("and with two tp ranks",
           must_hang("interleaved", 5, Rules(tp=2, order="start"), "NCCL's order of launches"))
    expect("by completion with room for a message",
           must_hang("interleaved", 5, Rules(room=1, order="completion"), "buffer is full"))
    for name, micros in (("interleaved", 5), ("zb-v", 3), ("dualpipev", 4), ("zb-2p", 3)):
        expect(f"{name} hangs if the host waits for the device at first passes",
               must_hang(name, micros, Rules(host="first"), "the host's wait for the device"))
    expect("1f1b hangs if it waits for the device everywhere",
           must_hang("1f1b", 2, Rules(host="device"), "the host's wait for the device"))


def launches_in_order_hang_as_documented():
    """docs/strategies/pipeline.md says with how many micro-batches."""
    for name, stages, chunks in itertools.product(("gpipe", "interleaved", "zb-interleaved"), (2, 3), (2, 3)):
        hanging = [micros for micros in range(1, 4 * stages + 2)
                   if Play(*lists_of(name, stages, micros, chunks), Rules(order="start")).hangs()]
        expected = [micros for micros in range(1, 4 * stages + 2)
                    if (micros >= 2 * stages if name == "gpipe" else micros > 2 * stages and micros % stages)]
        expect(f"{name} of {chunks} chunks on {stages} stages hangs with launches in order as documented",
               "" if hanging == expected else f"{hanging}, documented {expected}")


def lists_that_are_wrong():
    """On two stages: a gradient needed before the forward that it waits for, and receives in another order than sends."""
    def actions(text):
        return [Action({"F": "forward", "B": "backward"}[word[0]], 0, int(word[1])) for word in text.split()]
    for what, lists, says in (("a circle", ("F0 B0 F1 B1", "F0 F1 B0 B1"), "deadlock"),
                              ("another order", ("F0 F1 B0 B1", "F1 F0 B0 B1"), "not in the order of sends")):
        problem = play(Shape(2, 1, 2, "ring"), [actions(text) for text in lists], Rules())
        expect(f"lists with {what} are found", "" if says in problem else problem or "nothing found")
    played.clear()


def main():
    begin = time.monotonic()
    gc.disable()  # takes half of the time, and finds nothing
    the_test_can_fail()
    launches_in_order_hang_as_documented()
    lists_that_are_wrong()
    for number, name in enumerate(named()):
        expect(f"{name} ends", named_schedule(name, number))
    for stages in STAGES:
        expect(f"inference on {stages} stages ends", inference(stages))
    with tempfile.TemporaryDirectory() as folder:
        for search in SEARCHES if plays_all else SEARCHES[::2]:
            expect("a schedule found for {} stages, {} chunks, memory {} ends".format(*search),
                   found_schedule(pathlib.Path(folder), *search))
    for what, counts in hangs.items():
        shown = ", ".join(f"{name} {n} of {counts[name + ', all']}" for name, n in counts.items() if n and ", all" not in name)
        print(f"if {what}, these hang: {shown}")
    print(f"{played['cases']} cases, {played['schedules']} schedules printed by the program, {played['deadlocks']} deadlocks, "
          f"{time.monotonic() - begin:.0f} s")
    sys.exit(len(failures) > 0)


main()
