"""cmake/digits.py: what it writes of a digit, where it finds them, and what it refuses."""

import gzip
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SCRIPT, DIGITS = REPOSITORY / "cmake/digits.py", REPOSITORY / "tests/fixtures/digits.csv.gz"


class DigitsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "digits.bin"

    def digits(self, *arguments):
        return subprocess.run([sys.executable, SCRIPT, self.out, *arguments], capture_output=True, text=True, timeout=60)

    def written(self, source):
        done = self.digits("--from", source)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return self.out.read_bytes()

    def packed(self, text):
        with tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as file:
            file.write(gzip.compress(text.encode()))
        return file.name

    def test_a_pixel_becomes_four_by_four_in_three_channels(self):
        pixels = [i % 17 for i in range(64)]
        record = self.written(self.packed(",".join(map(str, [*pixels, 7])) + "\n"))
        self.assertEqual(len(record), 3073)
        self.assertEqual(record[0], 7)
        for channel in range(3):
            for y in range(32):
                for x in range(32):
                    value = pixels[y // 4 * 8 + x // 4]
                    self.assertLessEqual(abs(record[1 + channel * 1024 + y * 32 + x] - value * 255 / 16), 0.5)

    def test_the_order_is_another_and_always_the_same(self):
        lines = gzip.decompress(DIGITS.read_bytes()).decode().split()
        labels = [int(line.split(",")[-1]) for line in lines]
        one = self.written(DIGITS)
        self.assertEqual(one, self.written(DIGITS))
        found = list(one[::3073])
        self.assertNotEqual(found, labels)
        self.assertEqual(sorted(found), sorted(labels))

    def test_a_wheel_and_a_package_have_the_same(self):
        name = "sklearn/datasets/data/digits.csv.gz"
        wheel, package = self.folder / "scikit_learn.whl", self.folder / "sklearn"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.write(DIGITS, name)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(self.folder)
        expected = self.written(DIGITS)
        self.assertEqual(self.written(wheel), expected)
        self.assertEqual(self.written(package), expected)

    def test_without_a_source_there_are_digits(self):
        self.assertEqual(self.digits().returncode, 0)
        self.assertEqual(len(self.out.read_bytes()), 1797 * 3073)

    def test_what_is_no_digits_is_refused_with_its_name(self):
        cut = self.folder / "cut.csv.gz"
        cut.write_bytes(DIGITS.read_bytes()[:3000])
        zeros = ",".join(["0"] * 64)
        for source, said in ((self.folder / "absent", "absent: No such file"), (SCRIPT, "digits.py: Not a gzipped file"),
                             (cut, "cut.csv.gz: Compressed file ended"),
                             (self.packed(f"{zeros},1\n{zeros}\n"), "line 2: 63 pixels and label 0; expected 64"),
                             (self.packed(f"{zeros},10\n"), "line 1: 64 pixels and label 10; expected"),
                             (self.packed(f"17{zeros[1:]},1\n"), "line 1: 64 pixels and label 1; expected 64 pixels of 0")):
            done = self.digits("--from", source)
            self.assertEqual(done.returncode, 1)
            self.assertIn(said, done.stderr)
            self.assertNotIn("Traceback", done.stderr)


if __name__ == "__main__":
    unittest.main()
