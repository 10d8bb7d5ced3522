"""scripts/report.py: what its pages hold, what it leaves alone, what it refuses. tests/examples/programs/report_test.py has pages about
real runs."""

import math
import os
import random
import re
import shutil
import subprocess
import unittest

from run_fixtures import ScriptTest, gpipe_trace, line
import report
import report_charts as charts
from pipeline_trace import Action, Pipeline
from run_files import Fail, unquoted


# Moves the pointer over every chart and an action of a pipeline, then the focus of the first chart by keys, and says in the title
# what is seen: whether it is shown, within the window, with the colours of the curves; and its texts.
PROBE = """<script>onload = () => {
  const said = [], fits = e => e.getBoundingClientRect().left >= 0 && e.getBoundingClientRect().right <= innerWidth;
  const colors = (svg, kind) => [...svg.querySelectorAll(kind)].map(e => getComputedStyle(e)[kind === 'path' ? 'stroke' : 'fill']);
  const tell = svg => {
    const box = svg.closest('figure').querySelector('.values'), [curve, swatch] = svg.dataset.x ? ['path', 'path'] : ['.hit', 'rect'];
    const same = colors(svg, curve).join() === colors(box, swatch).join();
    const ends = [...svg.querySelectorAll('text.x')].every(fits) || !svg.dataset.x; // a pipeline scrolls
    const shown = box.checkVisibility() && svg.hasAttribute('tabindex');
    said.push([shown, fits(box) && ends, same, ...[...box.querySelectorAll('b,span')].map(e => e.textContent)].join('|'));
  };
  const svgs = document.querySelectorAll('figure svg');
  for (const svg of svgs) {
    const box = svg.getBoundingClientRect(), hit = svg.querySelectorAll('rect[data-t]')[3] || svg;
    hit.classList.add('hit');
    hit.dispatchEvent(new PointerEvent('pointermove', {bubbles: true, clientX: box.left + box.width * 0.7, clientY: box.top + 9}));
    tell(svg);
    svg.dispatchEvent(new PointerEvent('pointerleave'));
  }
  svgs[0].focus();
  for (const key of ['Home', 'ArrowRight', 'ArrowRight']) svgs[0].dispatchEvent(new KeyboardEvent('keydown', {key}));
  tell(svgs[0]);
  svgs[0].blur();
  document.title = said.join('\\n') + [...document.querySelectorAll('.values')].map(e => e.checkVisibility());
}</script></body>"""
SEEN = """true|true|true|step 8|a|0.125|b|0.2 at step 5
true|true|true|step 8|a|12,345.7|b|12,345.7 at step 5
true|true|true|stage 0, micro-batch 1|backward|13 to 16 ms
true|true|true|step 3|a|0.333333|b|0.333333false,false,false"""


class AxisTest(unittest.TestCase):
    def test_linear_ends_at_round_ticks(self):
        a = charts.linear_axis(0.13, 0.87)
        self.assertEqual((len(a.ticks), a.low, a.high, a.label(a.ticks[3]), a.at(0.25)), (6, 0, 1, "0.6", 0.25))
        self.assertEqual(charts.linear_axis(0, 2e9).label(5e8), "500M")

    def test_one_value_has_room_around_it(self):
        for low in (0, 3, -7e-5, 0.3, -0.3, 1e150, 1e-300):
            for high in (low, math.nextafter(low, math.inf)):
                a = charts.linear_axis(low, high)
                self.assertTrue(a.low < low and high < a.high and len(a.ticks) <= 8, (low, a))
        self.assertEqual(charts.make_axis(charts.DECADES, 1, 1).ticks, [0.5, 1, 2])
        self.assertEqual(charts.step_axis(5, 5).at(5), 0.5)

    def test_logarithms(self):
        self.assertEqual(charts.make_axis(charts.DECADES, 0.3, 4.5).ticks, [0.2, 0.5, 1, 2, 5])
        wide = charts.make_axis(charts.DECADES, 2e-3, 900)
        self.assertEqual(len(wide.ticks), 4, "every second power")
        self.assertAlmostEqual(wide.low, 1e-3)
        self.assertAlmostEqual(wide.at(math.sqrt(wide.low * wide.high)), 0.5)
        scale = charts.make_axis(charts.DOUBLINGS, 65536, 65536)
        self.assertEqual((scale.ticks, scale.label(65536)), ([32768, 65536, 131072], "2¹⁶"))

    def test_steps_are_exact_and_have_whole_ticks(self):
        a = charts.step_axis(1, 1000)
        self.assertEqual((a.low, a.high, a.ticks), (1, 1000, [200, 400, 600, 800, 1000]))
        self.assertEqual(charts.step_axis(1, 3).ticks, [1, 2, 3])

    def test_any_range(self):
        draw = random.Random(1)
        for _ in range(2000):
            low = 10 ** draw.uniform(-12, 12)
            high = low * (1 + 10 ** draw.uniform(-6, 6))
            for scale in (charts.LINEAR, charts.DECADES, charts.DOUBLINGS):
                a = charts.make_axis(scale, low, high)
                self.assertTrue(a.low <= low * (1 + 1e-8) and a.high >= high * (1 - 1e-8), (scale, low, high, a))
                self.assertTrue(2 <= len(a.ticks) <= 8 and a.ticks == sorted(a.ticks), (scale, low, high, a))


class SeriesTest(unittest.TestCase):
    def test_thinned_keeps_every_spike(self):
        points = [(i, 1) for i in range(1, 100001)]
        spikes = [(31416, 9), (77778, -4), (55555, 2)]
        for spike in spikes:
            points[spike[0] - 1] = spike
        kept = charts.thinned(points, 1, 100000, 300)
        self.assertTrue(len(kept) <= 602 and {*spikes, (1, 1), (100000, 1)} <= set(kept) and kept == sorted(kept))
        self.assertEqual(charts.thinned(points, 1, 100000, 100000), points)

    def test_thinned_passes_over_what_is_no_number(self):
        kept = charts.thinned([(i + 1, None if i < 500 else i) for i in range(1000)], 1, 1000, 10)
        self.assertEqual(max(value for _, value in kept[-10:]), 999)
        for step, value in kept:
            self.assertEqual(value is None, step <= 500)

    def test_means_are_of_the_steps_around(self):
        points = [(i + 1, i) for i in range(101)]
        means = charts.running_mean(points, 20, 10)
        self.assertEqual((means[0][0], means[-1][0]), (1, 101))
        for step, mean in means[1:-1]:
            self.assertAlmostEqual(mean, step - 1)
        self.assertEqual((means[0][1], means[-1][1]), (5, 95), "0 to 10, 90 to 100")
        points[50], points[70] = (51, 1e30), (71, None)  # later means know nothing of them
        self.assertEqual(charts.running_mean(points, 4, 101)[60][1], 60)
        self.assertEqual(charts.running_mean(points, 2, 101)[70][1], 70)


class ChartTest(unittest.TestCase):
    @staticmethod
    def svg(*points, **more):
        lines = [charts.Line(0, "x", list(enumerate(points, 1)))]
        return charts.Chart(**{"title": "", "lines": lines, "steps": (1, len(points))} | more).svg()

    def test_carries_what_it_shows(self):
        svg = self.svg(title="a < b", lines=[charts.Line(0, 'run "x"', [(1, 4.25), (2, 1.0625), (3, 2)])], steps=(1, 3))
        for part in ('data-p="1 4.25 2 1.0625 3 2"', 'data-n="run &quot;x&quot;"', 'aria-label="a &lt; b"',
                     'd="M58.0 50.1L291.0 220.7L524.0 170.5"'):  # from the left end to the right one, on an axis from 1 to 5
            self.assertEqual(svg.count(part), 1, svg)

    def test_breaks_off_where_there_is_no_value(self):
        svg = self.svg(1, 2, None, 2, None)
        self.assertIn('d="M58.0 224.0L174.5 10.0M407.5 10.0h0"', svg)
        self.assertIn('data-p="1 1 2 2 4 2"', svg)
        self.assertEqual(self.svg(None, None), "")

    def test_takes_logarithms_where_values_differ(self):
        self.assertIn(">100</text>", self.svg(1, 1000))
        self.assertNotIn(">100</text>", self.svg(1, 1000, 0), "one value is 0")
        svg = self.svg(1, 1000, 0, scale=charts.DECADES)
        self.assertIn('data-p="1 1 2 1000 3 0"', svg)
        self.assertEqual(svg.count("L"), 1, "0 is nowhere on this axis")

    def test_marks_skipped_steps_and_draws_means(self):
        svg = self.svg(*[1] * 500, means=True, skipped=[(1, [3, 400])])
        self.assertIn('data-m="1 1 3 1 5 1 ', svg)
        self.assertEqual([svg.count(part) for part in ('class="r0 pale"', '<path class="r0"', "h8z")], [1, 1, 2])

    def test_values_as_large_and_as_small_as_files_can_have_them(self):
        odd = [0, 5e-324, -5e-324, 1e-300, -1e-300, 1e-150, 1, 1e150, -1e150, 1e300, -1e300, None]
        for scale in (None, charts.DECADES, charts.DOUBLINGS):
            for a in odd:
                for b in odd:
                    self.assertNotIn("nan", self.svg(a, b, scale=scale), (scale, a, b))

    def test_thousands_of_actions_are_few_boxes(self):
        ran = [Action(0, "F", 0, m, m, m + 1) for m in range(20000)] + [Action(0, "B", 0, 0, 20000, 40000)]
        lanes = charts.Lanes(40000)
        lanes.draw("x", Pipeline(1, "ring", ran))
        svg = lanes.svg()
        self.assertTrue(200 < svg.count('class="f"') < 600 and svg.count('class="b"') == 1, svg.count('class="f"'))

    def test_text_is_fit_for_a_page(self):
        self.assertEqual(charts.escaped("<&>\"'\n\x7f\x9b é\udcff"), "&lt;&amp;&gt;&quot;'??? é?")


class RunTest(ScriptTest):
    script = "report.py"

    def run_of(self, name, metrics, **files):
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "metrics.jsonl").write_bytes(metrics if isinstance(metrics, bytes) else metrics.encode())
        for file, text in files.items():
            (folder / file.replace("__", ".")).write_text(text)
        return str(folder)

    def refused(self, code, why, call, *arguments):
        with self.assertRaises(Fail) as failed:
            call(*arguments)
        self.assertEqual(failed.exception.code, code, failed.exception)
        self.assertIn(why, str(failed.exception))

    def page(self, *words):
        said = self.call(*words, "--out", "page.html")
        self.assertRegex(said, r"^page\.html: \d+ runs?, ")
        return (self.folder / "page.html").read_text()

    def test_numbers_by_step(self):
        metrics = line(1) + line(2, val_loss=0.25) + line(3, loss=None, skipped=True, overflow="the loss", changed="seed was 1")
        where = self.run_of("a", metrics, config__toml='# Mesh\npp = 2\nschedule = "zb-h1"\n', lock="process 1 on here")
        r = report.read_run(where + "/")
        self.assertEqual((r.name, r.unit, r.host, r.skipped), ("a", "tokens", "process 1 on here", [3]))
        self.assertEqual(r.columns["loss"], [(1, 1), (2, 0.5), (3, None)])
        self.assertEqual(r.columns["val_loss"], [(2, 0.25)])
        self.assertEqual((r.overflows, r.notes), (["step 3: the loss"], ["Step 3 began a run with other settings: seed was 1."]))
        self.assertEqual((r.setting("schedule"), r.setting("tp"), r.number("pp"), r.number("schedule")), ("zb-h1", "?", 2, 0))
        r = report.read_run(self.run_of("a", metrics, settings__txt="pp = 4\nmodel FLOP per step = 2.5e9\n"))
        self.assertEqual((r.setting("pp"), r.number("model FLOP per step")), ("4", 2.5e9), "as resolved")
        self.assertEqual([unquoted(text) for text in (r'"a\"\\\n\u0007"', "7", '"', r'"\x"')], ['a"\\\n\a', "7", '"', r"\x"])

    def test_metrics_may_be_elsewhere(self):
        (self.folder / "far.jsonl").write_text(line(1) + line(2))
        where = self.run_of("a", line(1), metrics_path=f"{self.folder}/far.jsonl\n")
        self.assertEqual(len(report.read_run(where).columns["loss"]), 2)
        (self.folder / "far.jsonl").unlink()  # as on another machine
        self.assertEqual(len(report.read_run(where).columns["loss"]), 1)
        first = self.run_of("b", line(1) + line(2) + line(3), metrics_path=f"{self.folder}/b/metrics.jsonl\n")
        copy = self.run_of("c", line(1) + line(2), metrics_path=f"{self.folder}/b/metrics.jsonl\n")
        self.assertEqual([len(report.read_run(r).columns["loss"]) for r in (first, copy)], [3, 2], "a copy has its own")

    def test_a_line_that_is_cut_is_left_out(self):
        for left in (1, 20, len(line(3)) - 1):
            r = report.read_run(self.run_of("a", line(1) + line(2) + line(3)[:left]))
            self.assertEqual(len(r.columns["loss"]), 2)
            self.assertRegex("".join(r.notes), "metrics.jsonl, number 3, is cut")

    def test_damage_is_named_with_the_line(self):
        for second, why in ((line(2)[:30] + "\n" + line(3), "not JSON at"), ("\n" + line(3), "not JSON at"), ("7\n", "not a JSON object"),
                            ('{"loss":1}\n', "has no step"), ('{"step":2}\n', "has no loss"), (line(2, loss="x"), "expected a number"),
                            (line(1), "has step 1 after step 1"), (line(2, lr=True), "expected a number"),
                            (line(2, skipped=1), "expected true or false"), (line(2, overflow=1), "expected a text"),
                            (line(-2), "whole number"), ('{"step":2,"loss":1e999}\n', "expected a number"),
                            ('{"step":2,"loss":NaN}\n', "not JSON"), ('{"step":2,"step":3,"loss":1}\n', "given twice"),
                            ("[" * 100000 + "\n", "not JSON"), ('{"step":2,"loss":' + "9" * 5000 + "}\n", "not JSON")):
            where = self.run_of("a", line(1) + second)
            for part in ("a/metrics.jsonl:2", why, "The file is damaged. Delete that line"):
                self.refused(65, part, report.read_run, where)
        self.refused(65, "a/metrics.jsonl:2", report.read_run, self.run_of("a", line(1).encode() + b'{"step":2,"lr":"\xff"}\n'))

    def test_whatever_bytes_are_refused_or_drawn(self):
        where = self.run_of("a", "")
        text = "".join(line(step, grad_norm=1.5, loss_scale=2.0 ** step, overflow="x", val_loss=0.5) for step in range(1, 9))
        self.mutate(text, self.folder / "a/metrics.jsonl", lambda _: report.page_of(report.read_runs([where]), None))

    def test_what_is_no_run(self):
        self.refused(66, "there is no ", report.read_run, str(self.folder / "nowhere"))
        (self.folder / "folder").mkdir()
        self.refused(65, "folder has no metrics.jsonl", report.read_run, str(self.folder / "folder"))
        (self.folder / "folder/config.toml").touch()
        self.refused(66, "has no metrics.jsonl", report.read_run, str(self.folder / "folder"))
        for begun in ("", line(1)[:30]):
            for why in ("a/metrics.jsonl has no whole line yet", "Wait for its first step"):
                self.refused(66, why, report.read_run, self.run_of("a", begun))
        (self.folder / "file").touch()
        self.refused(65, "file has no metrics.jsonl", report.read_run, str(self.folder / "file"))
        os.mkfifo(self.folder / "folder/metrics.jsonl")  # which nobody writes
        self.refused(66, "has no metrics.jsonl", report.read_run, str(self.folder / "folder"))
        self.refused(65, "more than 1048576 bytes", report.read_run, self.run_of("b", line(1), settings__txt="x" * (1 << 20 | 1)))

    def test_runs_of_one_page_differ(self):
        a, b, c = (self.run_of(name, line(1)) for name in ("x/a", "y/a", "y/c"))
        self.assertEqual([r.name for r in report.read_runs([a, b, c])], [a, b, "c"])
        self.refused(64, "is given twice", report.read_runs, [a, b, a + "/."])
        self.refused(64, "17 runs; expected at most 16", report.read_runs, [a] * 17)
        images = self.run_of("z", '{"step":1,"loss":1,"samples":8,"samples_per_second":8}\n')
        for why in ("x/a counts tokens", "z counts samples", "different programs"):
            self.refused(65, why, report.read_runs, [a, images])

    def test_what_differs_comes_first(self):
        settings = 'seed = 1\nmin-lr = 0.00030000000000000003\nlong = 12345678901234567\nout = "v1.0e"\n# 5 settings\n'
        a = self.run_of("a", line(1), settings__txt="lr = 0.5\n" + settings)
        b = self.run_of("b", line(1), settings__txt="lr = 0.25\n" + settings)
        page = self.page(a, b)
        differ, equal = page.split("Settings that are equal")
        self.assertIn('<th scope="row">lr</th><td>0.5</td><td>0.25</td>', differ)
        self.assertNotIn(">lr</th>", equal)
        for cell in (">seed</th><td>1<", ">0.0003<", ">12345678901234567<", ">v1.0e<"):
            self.assertIn(cell, equal)
        self.assertIn("<p>All are equal.</p>", self.page(a, self.run_of("c", line(1), settings__txt="lr = 0.5\n" + settings)))
        self.assertIn("No run directory has a configuration", self.page(self.run_of("d", line(1))))
        self.assertNotIn("predicted memory", page)
        foreseen = self.run_of("e", line(1), settings__txt='memory foreseen = "1 KB: parameters 1 KB"\n')
        self.assertIn('predicted memory, and the peak of each kind</th><td>1 KB: parameters 1 KB</td>', self.page(foreseen))

    def test_share_of_a_peak(self):
        a = self.run_of("a", line(1, seconds=2) + line(2, seconds=2), settings__txt='dp = 2\npp = 1\ntp = 2\n'
                        'precision = "bf16"\nmodel FLOP per step = 3.1648e15\n')
        page = self.page(a)
        self.assertIn("model FLOP/s of a rank, median step</th><td>395.6T</td>", page)
        self.assertNotIn("MFU", page)
        (self.folder / "own.toml").write_text("fp32 = 1e12\nbf16 = 3.956e15\n")
        for name, cell in (("h100", "h100</th><td>40 % of 989T"), ("own.toml", "own</th><td>10 % of 3.956P")):
            self.assertIn(f"MFU, of the peak of {cell}</td>", self.page(a, "--hardware", name))
        for text in ("fp32 = 1e12\n", "fp32 = ", "fp32 = 1e12\nbf16 = true\n", "fp32 = 1e12\nbf16 = 989\n"):
            (self.folder / "own.toml").write_text(text)
            self.assertIn("own.toml", self.call(a, "--out", "x.html", "--hardware", "own.toml", code=78))
        self.assertIn("Valid: a100, a100-40gb, b200, cpu, h100, h200, h200-two-networks, l40s", self.call(a, "--hardware", "x", code=78))
        self.call(a, "--hardware", "x.toml", code=66)

    def test_profile(self):
        page = self.page(self.run_of("a", line(1), trace__json=gpipe_trace()))
        for part in ("<h2>Profile of a, steps 2 to 3</h2>", "rank 1 (dp 0, pp 1, tp 0)", "measured, step 3: 16 ms, bubble 38 %",
                     "simulated, gpipe: 15 ms, bubble 33 %"):
            self.assertIn(part, page)
        self.assertEqual(re.findall('data-t="(0;F;.*?)"', page), ["0;F;0;0;2", "0;F;1;2;4"] * 2, "measured and simulated, in ms")
        self.assertEqual(page.count('<rect class="f"'), 2 * 4 + 2 + 2, "of both, of the bars and of the keys")
        page = self.page(self.run_of("a", line(1), trace__json=gpipe_trace().replace('"B1"', '"X1"')))
        self.assertIn("Not simulated: these actions are no whole schedule.", page)
        self.assertIn("a/trace.json", self.call(self.run_of("a", line(1), trace__json=gpipe_trace()[:-9]), code=65))

    @unittest.skipUnless(shutil.which("chromium"), "no chromium")
    def test_values_at_the_pointer_and_the_focus_on_wide_and_narrow_screens(self):
        runs = (self.run_of(name, "".join(line(step, tokens_per_second=12345.67) for step in range(1, last)), **files)
                for name, last, files in (("a", 12, {"trace__json": gpipe_trace()}), ("b", 6, {})))
        (self.folder / "probe.html").write_text(self.page(*runs).replace("</body>", PROBE))
        for width in (360, 600, 1200):
            done = subprocess.run(["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},900", "--dump-dom",
                                   f"--user-data-dir={self.folder}/browser", f"file://{self.folder}/probe.html"],
                                  capture_output=True, text=True, timeout=120)
            if done.returncode != 0:
                self.skipTest(f"chromium: {done.stderr[-200:]}")
            title = re.search("<title>(.*?)</title>", done.stdout, re.S)[1]
            self.assertEqual(title, SEEN, width)

    def test_only_pages_are_replaced(self):
        a = self.run_of("a", line(1))
        first = self.page(a)
        self.run_of("a", line(1) + line(2))
        self.assertNotEqual(self.page(a), first)
        (self.folder / "notes.html").write_text("mine")
        for other in ("notes.html", "a/metrics.jsonl", "a"):
            self.assertIn(f"{other} exists and is no page of an earlier report", self.call(a, "--out", other, code=78))
        self.assertEqual((self.folder / "notes.html").read_text(), "mine")
        self.assertRegex(self.call(a), r"^report\.html: 1 run, ")
        self.assertIn("no/where.html", self.call(a, "--out", "no/where.html", code=73))
        self.call(a, "b", "--out", "x.html", code=66)
        for words in (("--out", "x.html"), (a, "--out", ""), (a, "--sideways"), (a, "--hard", "h100"), ("",)):
            self.call(*words, code=64)
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["a", "notes.html", "page.html", "report.html"])

    def test_hostile_names_stay_texts(self):
        name = '<script>x</script>"\x1b[2J'
        bad = "<b>&\"'\u2028"
        page = self.page(self.run_of(name, line(1, overflow=bad, changed=bad, **{f"val_{bad}": 1, f"{bad}_per_second": 1}),
                                     settings__txt=f'{bad} = "{bad}"\n', lock=bad, trace__json=gpipe_trace().replace('"gpipe"', '"<b>"')))
        both = self.page(name, self.run_of("other", line(1, **{f"{bad}_per_second": 1})))
        self.assertEqual(re.findall(r"<b>|<script>x|\x1b", page + both), [])
        self.assertIn("&lt;script&gt;x&lt;/script&gt;&quot;?[2J", page)
        self.assertIn("is no page", self.call("a", "--out", name, code=78))
        self.assertIn("there is no ?[2J", self.call("\x1b[2J", code=66))
        self.assertIn("there is no ?", self.call(os.fsdecode(b"\xff"), code=66))

    def test_long_runs_give_short_pages(self):
        metrics = "".join(line(i, loss=77.125 if i == 12345 else 3 + 1 / i, grad_norm=1 + 0.001 * (i % 97), lr=1e-3 / i,
                               tokens_per_second=1000 + i % 31) for i in range(1, 30001))
        page = self.page(*(self.run_of(name, metrics) for name in "abc"))
        self.assertLess(len(page), 1000000)
        self.assertIn(" 12345 77.125 ", page, "a spike is not lost")


if __name__ == "__main__":
    unittest.main()
