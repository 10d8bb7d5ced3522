"""check.py finds what is wrong with the kernels of planted.cu: planted_test.py OBJECT."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

import check

TABLE = """
planted  Wide<Halve>   1 1 0 0 40
planted  Wide<Halve>   1 1 0 0 8
planted  Wide<Divide>  1 1 0 0 40
planted  Wide<Look>    1 1 0 0 255
planted  Scalar<T>     1 1 99 9 255
"""
EXPECTED = """\
planted.cu: Wide<Halve>: it takes N registers; expected at most N
planted.cu: Wide<Divide>: its main loop has N calls; expected at most N
planted.cu: Wide<Look>: it keeps N bytes in local memory; expected none
planted.cu: Scalar<bf16>: it has N 16-byte loads; expected at least N
planted.cu: Scalar<bf16>: it has N 16-byte stores; expected at least N
planted.cu: Scalar<bf16>: it has N accesses of 1 or 2 bytes; expected none
planted.cu: no kernel Scalar<f32>; did its name change?
7 of the demands of TABLE are not met"""


def numberless(said):
    """Counts differ between compilers; what is complained about does not."""
    return re.sub(r"(has|takes|keeps|most|least) \d+", r"\1 N", said)


class PlantedTest(unittest.TestCase):
    maxDiff = None

    def check(self, table):
        with tempfile.NamedTemporaryFile("w", suffix="TABLE") as file:
            file.write(table)
            file.flush()
            done = subprocess.run([sys.executable, check.__file__, file.name, planted],
                                  capture_output=True, text=True)
        said = (done.stdout + done.stderr).replace(os.path.basename(file.name), "TABLE")
        return done.returncode, said.strip()

    def test_what_was_planted_is_found_and_nothing_else(self):
        status, said = self.check(TABLE)
        self.assertEqual(numberless(said), EXPECTED)
        self.assertEqual(status, 1)

    def test_demands_that_are_met(self):
        self.assertEqual(self.check("planted  Wide<H*  1 1 0 0 40  # comment"),
                         (0, "1 demands on machine code are met"))

    def test_a_line_that_lacks_a_number(self):
        status, said = self.check("planted  Wide<Halve>  1 1 0 0")
        self.assertEqual(status, 1)
        self.assertIn("expected: file, kernel, loads, stores, narrow, calls, registers", said)


if __name__ == "__main__":
    planted = sys.argv.pop()
    if not check.tools():
        sys.exit(check.SKIPPED)
    unittest.main()
