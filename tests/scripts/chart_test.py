"""bench/chart.py: what it draws of tables, and that a picture of other tables is seen."""

import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PAGE = """# Speed
## A machine
| workload | precision | threads | ratio, median (range) | date |
|---|---|---|---|---|
| mini | fp32 | 2 | 1.20 (1.10-1.35) of 5 | today |
| mini | bf16 | 1 | 0.88 (0.75-0.93) of 4 | today |

| mesh | ratio |
|---|---|
| dp 2 | 1.9 |
"""


class ChartTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.page, self.svg = (pathlib.Path(folder.name) / name for name in ("page.md", "page.svg"))

    def chart(self, page, *flags):
        """(exit status, standard error)"""
        self.page.write_text(page)
        done = subprocess.run([sys.executable, "-B", REPOSITORY / "bench/chart.py", "--page", self.page, "--svg", self.svg, *flags],
                              capture_output=True, text=True, timeout=60)
        return done.returncode, done.stderr

    def test_a_bar_a_row(self):
        self.assertEqual(self.chart(PAGE), (0, ""))
        shapes = list(xml.parse(self.svg).getroot().iter())
        bars = {shape.get("class"): shape for shape in shapes if shape.get("rx")}
        self.assertEqual(sorted(bars), ["f-amber", "f-blue"], "below 1 and above")
        self.assertAlmostEqual(float(bars["f-blue"].get("width")) / float(bars["f-amber"].get("width")), 1.2 / 0.88)
        words = [shape.text for shape in shapes if shape.tag.endswith("text")]
        for word in ("A machine", "mini, fp32", "mini, bf16, 1 thread", "1.20 (1.10-1.35)", "0.88 (0.75-0.93)"):
            self.assertEqual(words.count(word), 1, word)
        self.assertNotIn("dp 2", str(words))

    def test_check_sees_another_table(self):
        self.chart(PAGE)
        self.assertEqual(self.chart(PAGE, "--check"), (0, ""))
        drawn = self.svg.read_text()
        for old, new in (("1.20", "1.21"), ("1.35", "1.36"), ("A machine", "Another"), ("| mini | bf16", "| llama | bf16")):
            status, said = self.chart(PAGE.replace(old, new), "--check")
            self.assertEqual(status, 1, new)
            self.assertIn("page.svg is not what the tables of", said)
        self.assertEqual(self.svg.read_text(), drawn, "--check writes nothing")
        self.svg.unlink()
        self.assertIn("No such file", self.chart(PAGE, "--check")[1])

    def test_tables_that_have_no_ratio(self):
        for page, why in ((PAGE.replace("1.20 (1.10-1.35)", "1.20"), "A machine, mini: ratio `1.20 of 5`; expected MEDIAN"),
                          (PAGE.replace("| ratio, median", "| quotient, median"), "A machine, mini: ratio ``; expected"),
                          (PAGE.replace("workload", "load"), "no table has a first column `workload`"),
                          (PAGE.replace(" | today |", " |", 1), "columns; expected")):
            status, said = self.chart(page)
            self.assertEqual(status, 1)
            self.assertIn(why, said)
            self.assertNotIn("Traceback", said)


if __name__ == "__main__":
    unittest.main()
