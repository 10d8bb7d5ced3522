"""docs_test.py REPOSITORY PROGRAMS COMPILER [FLAGS]: the documentation says what is there.

Links lead somewhere, paths and programs exist, minigpt and resnet have the flags that are given to
them, and C++ compiles. A column of a table that is headed `triax-resnet train` has flags of that in backticks.
An HTML comment in the line before a C++ block says what it is:

    <!-- test: prints TEXT -->            a program; the build makes it in PROGRAMS; it prints TEXT
    <!-- test: runs ARGUMENTS -->         a program that is run with them and exits with 0
    <!-- test: quotes FILE -->            its lines are lines of FILE; an empty line stands for what is
                                          left out, and comments may differ
    <!-- test: wrap (PARAMETERS) -->      the body of a function with them; #include lines go above it
    <!-- test: skip because REASON -->    not compiled
    <!-- test: recipe -->                 applied, built and run by tests/recipes/recipes_test.py

Without one it is a translation unit. `docs_test.py --programs REPOSITORY FOLDER` writes the sources
of the programs into FOLDER and prints their names. In a path, <name> stands for any name.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

import pages


def source_of(block):
    """The translation unit to compile for a block."""
    if block.what != "wrap":
        return f'#line {block.line} "{block.page}"\n{block.text}'
    lines = block.text.splitlines()
    includes = [line for line in lines if line.startswith("#")]
    body = "\n".join("" if line.startswith("#") else line for line in lines)
    return "\n".join(includes) + (
        '\n#include "triax/core/tensor.h"\nusing namespace triax;\n'
        f'void block{block.rest} {{\n#line {block.line} "{block.page}"\n{body}\n}}\n')


def compiled(block, root, compiler):
    with tempfile.TemporaryDirectory() as headers:
        (pathlib.Path(headers) / "triax").symlink_to(root.resolve())
        done = subprocess.run([*compiler, f"-I{root}", f"-I{headers}", "-fsyntax-only", "-x", "c++", "-"],
                              input=source_of(block), capture_output=True, text=True, cwd=root)
    return [] if done.returncode == 0 else [f"{block.place}: does not compile\n{done.stderr[:2000]}"]


def ran(block, programs):
    program = programs / block.program
    if not program.is_file():
        return [f"{block.place}: {program} is not built"]
    arguments = block.rest.split() if block.what == "runs" else []
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60)
    said = done.stdout.strip()
    if block.what == "runs":
        return [] if done.returncode == 0 else [
            f"{block.place}: exit status {done.returncode} with `{block.rest}`\n{done.stderr[:2000]}"]
    if done.returncode == 0 and said == block.rest:
        return []
    return [f"{block.place}: prints `{said}`, exit status {done.returncode}; expected `{block.rest}`"]


def quoted(block, root):
    def bare(text):
        return [line.split("//")[0].strip() for line in text.splitlines()]

    path = root / block.rest
    if not path.is_file():
        return [f"{block.place}: quotes {block.rest}, which is not there"]
    lines, at = bare(path.read_text()), 0
    for paragraph in re.split(r"\n\s*\n", block.text.strip("\n")):
        wanted = bare(paragraph)
        ends = (i + len(wanted) for i in range(at, len(lines)) if lines[i:i + len(wanted)] == wanted)
        at = next(ends, None)
        if at is None:
            return [f"{block.place}: {block.rest} does not have these lines here:\n{paragraph}"]
    return []


def wrong_blocks(root, page, programs, compiler):
    for block in pages.blocks(root, page):
        if block.language != "cpp" or block.what == "recipe":
            continue
        if block.what == "quotes":
            yield from quoted(block, root)
        elif block.what == "skip":
            if not re.match(r"because \w+", block.rest):
                yield f"{block.place}: skipped without a reason; expected `skip because ...`"
        elif block.what in ("", "wrap", *pages.PROGRAMS):
            wrong = compiled(block, root, compiler)
            yield from wrong or (ran(block, programs) if block.what in pages.PROGRAMS else [])
        else:
            yield f"{block.place}: `{block.what}`; expected prints, quotes, recipe, runs, wrap or skip"


def wrong_links(root, page):
    for number, target in pages.links(root, page):
        name, _, anchor = target.partition("#")
        path = (root / page).parent / name if name else root / page
        if not path.exists():
            yield f"{page}:{number}: links to {target}, which is not there"
        elif anchor and anchor not in pages.anchors(path.parent, path.name):
            yield f"{page}:{number}: links to {target}; {path.name} has no such heading"


def wrong_paths(root, page):
    folders = [p.name for p in root.iterdir() if p.is_dir() and p.name not in pages.NOT_SOURCES]
    targets = set(re.findall(r"\w+", "".join(p.read_text() for p in [
        *root.glob("*/CMakeLists.txt"), *root.glob("tests/*/CMakeLists.txt")])))
    new = re.findall(r"^New file `([^`]+)`:$", (root / page).read_text(), re.M)  # by a recipe
    for number, text in pages.code(root, page):
        for word in text.split():
            if word in new:
                continue
            path = re.sub(r"<\w+>", "*", word.strip("()',:;").rstrip("."))
            if path.split("/")[0] in folders and "/" in path and not any(root.glob(path.rstrip("/"))):
                yield f"{page}:{number}: there is no {path}"
            built = re.fullmatch(r"build/\w+/bin/(\w+)", path)
            if built and built[1] not in targets:
                yield f"{page}:{number}: no CMakeLists.txt builds {built[1]}"


def all_flags(root, programs):
    """{`minigpt train`: its flags} and so on, of the pages that `PROGRAM flags` wrote."""
    made = [page for page in [root / "docs/cli.md", *programs.glob("*.flags")] if page.is_file()]
    sections = [part for page in made
                for part in re.split(r"^## ([\w-]+ \w+)$", page.read_text(), flags=re.MULTILINE)[1:]]
    return {verb: {"--help", *re.findall(r"`(--[\w-]+)", table)}
            for verb, table in zip(sections[::2], sections[1::2])}


def wrong_flags(root, page, flags):
    given = [(number, verb, text.split(verb, 1)[1]) for number, text in pages.code(root, page)
             for verb in flags if re.search(rf"\b{verb} ", text)]
    given += [(number, heading, text) for number, heading, text in pages.columns(root, page)
              if heading in flags]
    for number, verb, text in given:
        for flag in sorted(set(re.findall(r"(?<!\S)(--[\w-]+)", text)) - flags[verb]):
            yield f"{page}:{number}: {verb} has no {flag}"


def problems(root, programs, compiler):
    flags = all_flags(root, programs)
    for page in pages.pages(root):
        yield from wrong_links(root, page)
        yield from wrong_paths(root, page)
        yield from wrong_flags(root, page, flags)
        yield from wrong_blocks(root, page, programs, compiler)


def write_programs(root, folder):
    for page in pages.pages(root):
        for block in pages.blocks(root, page):
            if block.what in pages.PROGRAMS:
                yield pages.write_program(block, folder).stem


if __name__ == "__main__":
    if sys.argv[1] == "--programs":
        print(";".join(write_programs(pathlib.Path(sys.argv[2]), sys.argv[3])), end="")
        sys.exit()
    root = pathlib.Path(sys.argv[1])
    found = list(problems(root, pathlib.Path(sys.argv[2]), sys.argv[3:]))
    print("\n".join([*found, f"{len(pages.pages(root))} pages; {len(found)} mistakes"]))
    sys.exit(1 if found else 0)
