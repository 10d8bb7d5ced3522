"""The pages of the documentation, taken apart: C++ blocks, links, paths and commands."""

import dataclasses
import pathlib
import re
import textwrap

FENCE = re.compile(r"^( *)```(\w*)$")
DIRECTIVE = re.compile(r"^ *<!-- test: (\w+) ?(.*?) -->$")
NOT_SOURCES = ["build", "runs"]
PROGRAMS = ["prints", "runs"]  # directives of blocks that the build makes programs of


@dataclasses.dataclass
class Block:
    """A fenced block: the `number`th of its page, its text from `line` on; `what` and `rest`: its directive."""

    page: str
    number: int
    line: int
    language: str
    what: str
    rest: str
    text: str

    @property
    def place(self):
        return f"{self.page}:{self.line}"

    @property
    def program(self):
        return re.sub(r"\W", "_", self.page.removesuffix(".md")) + f"_{self.number}"


def pages(root):
    """Paths relative to the repository."""
    found = [*root.glob("*.md"), *root.glob("docs/**/*.md"), root / "tests/faults/README.md"]
    return [str(path.relative_to(root)) for path in sorted(found) if path.is_file()]


def blocks(root, page):
    lines = (root / page).read_text().splitlines()
    start, number = None, 0
    for at, line in enumerate(lines):
        fence = FENCE.match(line)
        if not fence:
            continue
        if start is None:
            start, language = at + 1, fence[2]
            continue
        directive = DIRECTIVE.match(lines[start - 2]) if start > 1 else None
        what, rest = directive.groups() if directive else ("", "")
        text = textwrap.dedent("\n".join(lines[start:at])) + "\n"
        number += 1
        yield Block(page, number, start + 1, language, what, rest, text)
        start = None


def prose(root, page):
    """(line number, text) outside of fenced blocks."""
    fenced = False
    for number, line in enumerate((root / page).read_text().splitlines(), 1):
        if re.match(r"^ *```", line):
            fenced = not fenced
        elif not fenced:
            yield number, line


def anchors(root, page):
    """Of its headings, as GitHub makes them."""
    headings = (re.match(r"#+ (.*)", line) for _, line in prose(root, page))
    return {re.sub(r"[^\w\- ]", "", h[1].lower()).replace(" ", "-") for h in headings if h}


def links(root, page):
    for number, line in prose(root, page):
        for target in re.findall(r"\]\(([^)]+)\)", line):
            if "://" not in target:
                yield number, target


def code(root, page):
    """(line number, text) of what stands in backticks or in blocks that are not C++."""
    whole = [(number, line + "\n") for number, line in prose(root, page)]
    text = "".join(line for _, line in whole)
    starts = [number for number, line in whole for _ in line]
    for span in re.finditer(r"`([^`]+)`", text):
        yield starts[span.start()], span[1].replace("\n", " ")
    for block in blocks(root, page):
        if block.language != "cpp":
            joined = block.text.replace("\\\n", " ")
            yield from ((block.line, line.split(" #")[0]) for line in joined.splitlines())


def columns(root, page):
    """(line number, heading of the column, what stands in backticks) of the cells of tables."""
    headings = None
    for number, line in prose(root, page):
        if not line.startswith("|"):
            headings = None
            continue
        cells = [" ".join(re.findall(r"`([^`]+)`", cell)) for cell in re.split(r"(?<!\\)\|", line)]
        headings = headings or cells
        yield from ((number, heading, cell) for heading, cell in zip(headings, cells))


def write_program(block, folder):
    """The file is left alone where it would be the same."""
    path = pathlib.Path(folder) / f"{block.program}.cpp"
    text = f'#line {block.line} "{block.page}"\n{block.text}'
    if not path.is_file() or path.read_text() != text:
        path.write_text(text)
    return path
