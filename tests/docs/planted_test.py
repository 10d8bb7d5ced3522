"""planted_test.py COMPILER [FLAGS]: docs_test.py finds a mistake of each kind, and none in a right page."""

import pathlib
import sys
import tempfile

import commands_test
import docs_test
import pages

CLI = "# Flags\n\n## minigpt train\n\n| `--steps N` | steps |\n"
RESNET = "# Flags\n\n## triax-resnet train\n\n| `--width N` | channels |\n"
QUOTED = "int twice(int x) {  // there\n  return 2 * x;\n}\n"


def cpp(text, directive=""):
    comment = f"<!-- test: {directive} -->\n" if directive else ""
    return f"{comment}```cpp\n{text}\n```\n"


# What a page says, and the message that it gets; None for a page that is right.
CASES = [
    (cpp("int whole() { return 1; }"), None),
    (cpp("int whole() { return missing; }"), "page.md:2: does not compile"),
    (cpp("#include <vector>\nreturn n + int(std::vector<int>().size());", "wrap (int n)"), "return"),
    (cpp("#include <vector>\nn += int(std::vector<int>().size());", "wrap (int n)"), None),
    (cpp("m += 1;", "wrap (int n)"), "page.md:3: does not compile"),
    (cpp("int twice(int x) {  // here\n\n}", "quotes core/twice.h"), None),
    (cpp("int twice(int x) {  // here\n}", "quotes core/twice.h"), "does not have these lines here"),
    (cpp("}\n\nint twice(int x) {", "quotes core/twice.h"), "does not have these lines here:\nint"),
    (cpp("}", "quotes core/thrice.h"), "quotes core/thrice.h, which is not there"),
    (cpp("anything at all", "skip because it is pseudocode"), None),
    (cpp("anything at all", "skip"), "skipped without a reason"),
    (cpp("int x;", "guess"), "`guess`; expected prints, quotes, recipe, runs, wrap or skip"),
    (cpp("int main() {}", "prints 7"), "is not built"),
    (cpp("int main() {}", "runs --fast"), "is not built"),
    ("# A heading, or two\n[here](#a-heading-or-two) [code](../core/twice.h)\n", None),
    ("# A heading\n[here](#another)\n", "page.md:2: links to #another; page.md has no such heading"),
    ("[there](there.md)\n", "page.md:1: links to there.md, which is not there"),
    ("`core/twice.h`, `core/<name>.h` and `core/*.h`\n", None),
    ("text\n`core/thrice.h`\n", "page.md:2: there is no core/thrice.h"),
    ("```\ncore/run.sh --fast\n```\n", "page.md:2: there is no core/run.sh"),
    ("`build/release/bin/tool`\n", None),
    ("`build/release/bin/fool`\n", "page.md:1: no CMakeLists.txt builds fool"),
    ("`minigpt train --steps 3`\n", None),
    ("```\nminigpt train \\\n  --stpes 3\n```\n", "page.md:2: minigpt train has no --stpes"),
    ("`triax-resnet train --width 3`\n", None),
    ("`triax-resnet train --steps 3`\n", "page.md:1: triax-resnet train has no --steps"),
    ("| key | `triax-resnet train` |\n|---|---|\n| `--steps` | `--width 3` |\n", None),
    ("| key | `triax-resnet train` |\n|---|---|\n| `--width` | 1, `--width 3 --steps 3` |\n",
     "page.md:3: triax-resnet train has no --steps"),
]


def found_in(text, compiler):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        files = {"docs/page.md": text, "docs/cli.md": CLI, "resnet.flags": RESNET, "core/twice.h": QUOTED,
                 "core/tensor.h": "namespace triax {}\n",
                 "core/CMakeLists.txt": "add_executable(tool tool.cpp)\n"}
        for name, content in files.items():
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text(content)
        return list(docs_test.problems(root, root, compiler))


def test_programs():
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "page_1"
        program.write_text('#!/bin/sh\necho 7\nexit "${1:-0}"\n')
        program.chmod(0o755)
        block = pages.Block("page.md", 1, 3, "cpp", "prints", "7", "")
        assert not docs_test.ran(block, program.parent)
        block.rest = "8"
        assert "prints `7`" in docs_test.ran(block, program.parent)[0]
        block.what, block.rest = "runs", "0"
        assert not docs_test.ran(block, program.parent)
        block.rest = "3"
        assert "exit status 3 with `3`" in docs_test.ran(block, program.parent)[0]


def test_commands():
    with tempfile.TemporaryDirectory() as folder:
        page = commands_test.Page(pathlib.Path(folder))

        def wrong(what, rest, text):
            return page.run(pages.Block("page.md", 1, 3, "", what, rest, text + "\n"))

        assert not wrong("commands", "b  --steps 9", "test -d .\necho step 7:  a")
        assert not wrong("output", "", "step 12: a b\n--steps 100")
        assert "not printed: ['step 7: c']" in wrong("output", "", "step 7: c")
        assert "exit code 1, expected 0" in wrong("commands", "", "false\ntrue")
        assert "exit code 0, expected 75" in wrong("interrupted", "", "trap '' INT; echo step 1")
        assert not wrong("interrupted", "", "trap 'exit 75' INT; echo step 1; while :; do sleep 0.1; done")
        assert not wrong("commands", "", "echo 4 calls;  echo 96 bytes")
        assert not wrong("exactly", "", "4 calls\n96  bytes")
        assert "expected:" in wrong("exactly", "", "4 calls\n95 bytes")
        assert "expected:" in wrong("exactly", "", "4 calls")
        assert not wrong("typed", "one", 'read -r word; [ "$word" = one ]')
        assert not wrong("file", "name", "text") and page.folder.joinpath("name").read_text() == "text\n"
        assert "expected commands" in wrong("", "", "true")
        assert "expected commands" in wrong("skip", "", "true")


if __name__ == "__main__":
    for text, message in CASES:
        found = found_in(text, sys.argv[1:])
        right = not found if message is None else len(found) == 1 and message in found[0]
        assert right, f"{text}\nfound {found}; expected {message}"
    test_programs()
    test_commands()
    print(f"{len(CASES)} pages as expected")
