"""check_found.py FILE..: an independent check of the files that `schedule --search --save` writes.

It knows the format (parallel/pipeline/synthesis/schedule_file.h) and shares no code with what wrote them. Every list is
complete and in order, memory stays within the cap, what a stage receives is what is sent next to it, nobody waits
forever, and the cost is the one in the file. Prints a line for each; exit status 1 if one is wrong.

A handover takes place when it was sent and its receive is posted: the first of a channel at the start, the next when
the one before is taken by its action. It arrives `latency` later.

O and R: what F keeps for its backward goes to host memory and comes back. A copy out begins when F has ended, one back at its
R, each behind the one before it in its direction; O waits for the first, the backward for the second.
"""

import json
import sys


class Wrong(Exception):
    pass


def need(ok, what):
    if not ok:
        raise Wrong(what)


def actions(text):
    """(kind, chunk, micro-batch) of a list."""
    for word in text.split():
        chunk, micro = word[1:].split(".")
        yield word[0], int(chunk), int(micro)


def halves(kind):
    """A is a whole backward, B and W at once."""
    return "BW" if kind == "A" else kind


def memory(stage, todo, d):
    """The most that a stage holds, in activations of a whole stage."""
    wanted = {(kind, c, m) for kind in "FBW" for c in range(d["chunks"]) for m in range(d["micros"])}
    parts = [(half, c, m) for kind, c, m in todo if kind not in "OR" for half in halves(kind)]
    need(len(parts) == len(wanted) and set(parts) == wanted, f"stage {stage} is not complete")
    done, held, most = set(), 0.0, 0.0
    for kind, c, m in todo:
        before = {"A": "F", "B": "F", "W": "B", "O": "F", "R": "O"}.get(kind)
        need(not before or (before, c, m) in done, f"stage {stage}: {kind}{c}.{m} before its {before}")
        need(kind not in "AB" or ("O", c, m) not in done or ("R", c, m) in done, f"stage {stage}: {kind}{c}.{m} before its R")
        need(kind not in "OR" or not {("B", c, m), (kind, c, m)} & done, f"stage {stage}: {kind}{c}.{m} too late")
        done |= {(half, c, m) for half in halves(kind)}
        held += {"F": 1.0, "A": -1.0, "B": d["hold"] - 1.0, "W": -d["hold"], "O": -1.0, "R": 1.0}[kind] / d["chunks"]
        most = max(most, held)
    return most


def virtual_stages(d):
    """(stage, chunk) of every virtual stage."""
    need(d["placement"] in ("ring", "v"), "placement")
    place = [(v % d["stages"], v // d["stages"]) for v in range(d["stages"] * d["chunks"])]
    if d["placement"] == "v":  # every other chunk runs backwards
        place = [(d["stages"] - 1 - s if c % 2 else s, c) for s, c in place]
    return place


def span_of_stages(lists, d):
    """First begin and last end of every stage, if each action begins as early as it can."""
    place = virtual_stages(d)
    index = {at: v for v, at in enumerate(place)}
    last = len(place) - 1
    end, taken = {}, {}  # of passes: their end; of channels: when the last receive was taken
    at, clock, first = [0] * d["stages"], [0.0] * d["stages"], [None] * d["stages"]
    moved_out = [{(c, m) for kind, c, m in todo if kind == "O"} for todo in lists]
    out, back, lanes = {}, {}, {}  # of passes: the ends of their copies; of stages and directions: that of the last

    def arrival(kind, v, m):
        """None: not sent yet."""
        source = v - 1 if kind == "F" else v + 1
        if kind == "W" or source < 0:
            return 0.0
        if source > last:
            return end[("F", v, m)]
        if (kind, source, m) not in end:
            return None
        if place[source][0] == place[v][0]:
            return end[(kind, source, m)]
        number, begun = taken.get((kind, v), (0, 0.0))
        need(number == m, f"virtual stage {v} takes {kind} of micro-batch {m} when {number} is sent")
        return max(end[(kind, source, m)], begun) + d["times"][min(v, source)][3]

    moved = True
    while moved:
        moved = False
        for s in range(d["stages"]):
            while at[s] < len(lists[s]):
                word, c, m = lists[s][at[s]]
                kind = halves(word)[0]  # what is received and sent
                v = index[(s, c)]
                if word in "OR":
                    if word == "O":
                        clock[s] = max(clock[s], out[(v, m)])
                    else:
                        back[(v, m)] = lanes[s, word] = max(clock[s], lanes.get((s, word), 0.0)) + d["times"][v][4]
                    at[s], moved = at[s] + 1, True
                    continue
                ready = arrival(kind, v, m)
                if ready is None:
                    break
                begin = max(clock[s], ready, back.get((v, m), 0.0))
                if kind != "W":
                    taken[(kind, v)] = (m + 1, begin)
                first[s] = begin if first[s] is None else first[s]
                clock[s] = begin + sum(d["times"][v]["FBW".index(half)] for half in halves(word))
                end[(kind, v, m)] = clock[s]
                if kind == "F" and (c, m) in moved_out[s]:
                    out[(v, m)] = lanes[s, "O"] = max(clock[s], lanes.get((s, "O"), 0.0)) + d["times"][v][4]
                at[s], moved = at[s] + 1, True
    for s, done in enumerate(at):
        need(done == len(lists[s]), f"deadlock: stage {s} waits at position {done}")
    return first, clock


def check(d):
    lists = [list(actions(text)) for text in d["lists"]]
    need(len(lists) == d["stages"] == len(d["cap"]), "stages")
    peak = [memory(s, todo, d) for s, todo in enumerate(lists)]
    for s, (held, cap) in enumerate(zip(peak, d["cap"])):
        need(held <= cap + 1e-9, f"stage {s} holds {held:g}, above its cap of {cap:g}")
    begins, ends = span_of_stages(lists, d)
    spans = ends if d["objective"] == "makespan" else [e - b for b, e in zip(begins, ends)]
    cost = max(spans)
    need(abs(cost - d["cost"]) <= 1e-6 * cost, f"costs {cost}, says {d['cost']}")
    need(d["bound"] <= cost * (1 + 1e-6), f"costs {cost}, less than its bound {d['bound']}")
    return cost, max(peak)


def main():
    wrong = 0
    for path in sys.argv[1:]:
        try:
            with open(path) as file:
                cost, peak = check(json.load(file))
            print(f"{path}: fine, cost {cost:.6g}, holds {peak:g}")
        except Wrong as e:
            wrong += 1
            print(f"{path}: WRONG: {e}")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
