"""scripts/overlay.py: a measured pipeline over the simulation of what it ran, and traces that are none."""

import json
import unittest

from run_fixtures import ScriptTest, event, gpipe_trace, small_trace, trace
from pipeline_trace import Action, Pipeline, action_named, read_trace, simulated
from run_files import Fail


class OverlayTest(ScriptTest):
    script = "overlay.py"

    def trace(self, text):
        file = self.folder / "trace.json"
        file.write_text(text)
        return file

    def test_says_who_waits(self):
        (self.folder / "run").mkdir()
        (self.folder / "run/trace.json").write_text(small_trace())
        self.assertEqual(self.call("run"), """run, step 7: 1f1b, 2 stages, 1 micro-batch
(replica 0, tensor-parallel rank 0)

pipeline, measured       14.50 ms
pipeline, simulated      14.00 ms  measured: +3.6 %
whole step               15.50 ms

                works       waits          waits, simulated
stage 0       6.00 ms     8.50 ms  58.6 %           8.00 ms
stage 1       6.00 ms     8.50 ms  58.6 %           8.00 ms

stage 0 waits most: 8.50 ms of 14.50 ms
""")

    def test_json_holds_both(self):
        both = json.loads(self.call(self.trace(small_trace()), "--json"))
        self.assertEqual((both["step"], both["source"]), (7, str(self.folder / "trace.json")))
        self.assertAlmostEqual(both["seconds"], 15.5e-3)
        for which, time, begin in (("measured", 14.5e-3, 10.5e-3), ("simulated", 14e-3, 10e-3)):
            t = both[which]
            self.assertAlmostEqual(t["time"], time)
            self.assertAlmostEqual(t["actions"][1]["begin"], begin, msg="without its wait")
            self.assertEqual((t["stages"], t["chunks"], t["micros"], t["placement"], len(t["actions"])), (2, 1, 1, "ring", 4))
            self.assertEqual((t["name"], t["peak_live"], t["actions"][0]["kind"]), ("1f1b", [1, 1], "forward"))
            self.assertEqual(t["handovers"], [{"kind": "activation", "micro": 0, "from": 0, "to": 1},
                                              {"kind": "gradient", "micro": 0, "from": 1, "to": 0}])

    def test_the_last_step_is_used(self):
        found = read_trace(self.trace(gpipe_trace()))
        p = found.pipeline
        self.assertEqual((found.first, found.last, found.schedule, found.ranks[1].pp, found.ranks[0].communicating),
                         (2, 3, "gpipe", 1, 0.25))
        self.assertEqual((p.stages, p.chunks, p.micros, len(p.actions)), (2, 1, 2, 8))
        self.assertAlmostEqual(p.time, 16e-3)
        self.assertAlmostEqual(p.lists[1][0].begin, 2e-3, msg="without the wait for its input")
        self.assertAlmostEqual(p.lists[0][0].end, 2e-3, msg="with that for others")
        self.assertAlmostEqual(p.bubble / p.time, 6 / 16)
        s = simulated(found, "x")
        self.assertAlmostEqual(s.time, 15e-3)
        self.assertAlmostEqual(s.bubble / s.time, 1 / 3)

    def test_a_receive_is_posted_when_the_one_before_was_taken(self):
        steps = [event(rank, name, "work", 0, 9000) for rank in (0, 1) for name in ("step 7", "step")]
        ran = ["0 F0 0 1000", "0 F1 1000 1200", "0 B0 5000 6000", "0 B1 6000 7000", "1 F0 2000 2500", "1 F1 3000 3500",
               "1 B0 3500 4000", "1 B1 4000 4500"]  # over a link of 1 ms
        ran = [event(int(rank), name, "action", int(begin), int(end)) for rank, name, begin, end in map(str.split, ran)]
        found = read_trace(self.trace(trace(steps + ran)))
        for a, b in zip(found.pipeline.actions, simulated(found, "x").actions):
            self.assertAlmostEqual(a.begin, b.begin, msg=a)

    def test_two_chunks_in_a_v(self):
        steps = [event(rank, name, "work", 0, 9000) for rank in (0, 1) for name in ("step 7", "step")]
        round_trip = [(0, "F0a"), (1, "F0a"), (1, "F0b"), (0, "F0b"), (0, "I0b"), (1, "B0b"), (1, "B0a"), (0, "B0a"), (0, "W0b")]
        text = trace(steps + [event(rank, name, "action", 1000 * i, 1000 * i + 1000) for i, (rank, name) in enumerate(round_trip)])
        shown = json.loads(self.call(self.trace(text.replace('"ring"', '"v"')), "--json"))["simulated"]
        self.assertEqual((shown["chunks"], shown["placement"], shown["peak_live"]), (2, "v", [2, 2]))
        self.assertAlmostEqual(shown["time"], 9e-3)
        self.assertEqual([(h["from"], h["to"]) for h in shown["handovers"]], [(0, 1), (3, 2), (1, 2), (2, 3), (2, 1), (1, 0)])
        self.assertIn("pipeline, simulated      11.00 ms", self.call(self.trace(text)), "on a ring")

    def test_activations_that_are_held(self):
        for order, most in (("F0 B0 F1 I1 W1", 1), ("F0 F1 B0 F2 B1 B2", 2), ("F0 I0 F1 I1 W0 W1", 2)):
            ran = [Action(0, *action_named(name), i, i + 1) for i, name in enumerate(order.split())]
            self.assertEqual(Pipeline(1, "ring", ran).peak_live(), [most], order)

    def test_names_of_actions(self):
        for name, action in {"F12": ("F", 0, 12), "B3b": ("B", 1, 3), "W0.30": ("W", 30, 0), "I1a": ("I", 0, 1), "X1": None,
                             "F": None, "F1bb": None, "F1.": None, "F9999999": None, "F1.4096": None, "": None}.items():
            self.assertEqual(action_named(name), action, name)

    def test_one_stage_has_no_pipeline(self):
        text = small_trace().replace('"pp":1,"tp":0', '"pp":0,"tp":1')
        self.assertIsNone(read_trace(self.trace(text)).pipeline)
        self.assertIsNone(read_trace(self.folder / "none.json"))
        self.assertIn("step 7 has no actions of a pipeline", self.call(self.trace(text), code=65))

    def test_ranks_with_other_rows_are_of_the_same_stage(self):
        two = '"waiting":0.125},\n{"rank":1,"dp":0,"pp":0,"cp":1,"tp":0,"busy":0,"communicating":0,"waiting":0},'
        text = small_trace().replace('"rank":1', '"rank":2').replace('"waiting":0.125},', two, 1).replace('"pid":2', '"pid":3')
        read = read_trace(self.trace(text.replace('"pp":0,"tp"', '"pp":0,"cp":0,"tp"')))
        self.assertEqual([r.cp for r in read.ranks], [0, 1, 0])
        self.assertEqual(read.pipeline.stages, 2)

    def test_runs_without_a_trace(self):
        self.assertIn("there is no run nowhere", self.call("nowhere", code=66))
        (self.folder / "run").mkdir()
        said = self.call("run", code=66)
        self.assertIn("run/trace.json", said)
        self.assertIn("train --pp 2 --profile", said)
        for words in ((), ("",), ("a", "b"), ("a", "--pp", "2"), ("a", "--js")):
            self.call(*words, code=64)

    def test_lists_that_are_no_schedule(self):
        third = '"waiting":0.125},\n{"rank":2,"dp":0,"pp":2,"tp":0,"busy":0,"communicating":0,"waiting":0}],'
        for old, new, why in (('"waiting":0.125}],', third, "no whole schedule of 3 stages"),
                              ('"F0"', '"X0"', "no whole schedule of 2 stages"),
                              ('"F0"', '"F1"', "no whole schedule"), ('"F0"', '"F1000000"', "no whole schedule"),
                              ('"B0"', '"I0"', "stage 0 did FI of micro-batch 0"),
                              ('"action"', '"layer"', "no actions of a pipeline")):
            self.assertIn(why, self.call(self.trace(small_trace().replace(old, new)), code=65), new)
        steps = [event(rank, name, "work", 0, 99) for rank in (0, 1) for name in ("step 7", "step")]
        order = [(0, "F0"), (0, "F1"), (0, "B0"), (0, "B1"), (1, "F1"), (1, "F0"), (1, "B0"), (1, "B1")]
        crossed = [event(rank, name, "action", 10 + 5 * i, 15 + 5 * i) for i, (rank, name) in enumerate(order)]
        self.assertIn("another order", self.call(self.trace(trace(steps + crossed)), code=65))
        early = [event(rank, name, "action", 10 + 5 * i, 15 + 5 * i) for i, (rank, name) in enumerate(
            [(0, "F0"), (0, "B0"), (0, "F1"), (0, "B1"), (1, "F0"), (1, "F1"), (1, "B0"), (1, "B1")])]
        self.assertIn("wait for each other", self.call(self.trace(trace(steps + early)), code=65))

    def test_damage_is_named(self):
        whole = gpipe_trace()
        for size in range(0, len(whole) - 2, 7):
            with self.assertRaisesRegex(Fail, "trace.json"):
                read_trace(self.trace(whole[:size]))
        for old, new, why in (('"pp":1', '"pp":9', "no mesh"), ("[2,3]", "[2]", "first and last step"),
                              ("[2,3]", '[2,"x"]', "a whole number"), ('"ts":2000', '"ts":"x"', "a number"),
                              ('"ts":2000', '"ts":{', "not JSON"), ('"ts":2000', '"ts":NaN', "not JSON"),
                              ('"ts":2000', '"ts":1e999', "a number"), ('"dur":2000', '"dur":-2000', "ends before it begins"),
                              ('"busy":0.5,', "", "has no busy"), ('"name":"F0"', '"name":["F0"]', "a text"),
                              ('"ranks":[', '"ranks":[7,', "has no rank"), ('"ranks":[', '"ranks":[[[', "trace.json"),
                              ('"schedule":"', '"schedule":"\udcff', "not JSON"), ('"tid":1', '"pid":1', "given twice"),
                              ("[2,3]", "[" * 100000, "not JSON"), ('"traceEvents"', '"events"', "no traceEvents")):
            self.trace("")
            (self.folder / "trace.json").write_bytes(whole.replace(old, new, 1).encode(errors="surrogateescape"))
            self.assertIn(why, self.call("trace.json", code=65), new[:40])

    def test_whatever_bytes_are_refused_or_read(self):
        def read(file):
            found = read_trace(file)
            return found.pipeline and simulated(found, file)
        self.mutate(gpipe_trace(), self.folder / "trace.json", read)

    def test_hostile_texts_do_not_steer_a_terminal(self):
        said = self.call(self.trace(small_trace().replace('"1f1b"', r'"\u001b[2J\n"')))
        self.assertIn("step 7: ?[2J?, 2 stages", said)


if __name__ == "__main__":
    unittest.main()
