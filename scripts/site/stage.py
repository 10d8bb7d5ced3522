#!/usr/bin/env python3
"""stage.py REPOSITORY FOLDER: the pages of the documentation, and one for every public header, for MkDocs.

Pages keep their places, so that their links stay right, but for docs/index.md, which becomes the first page of all, and
README.md, which leaves it that place. A header's page has its contracts (`///`) as text and its declarations as they
stand there, without what is private. In texts, the name of a header becomes a link.
"""

import os
import pathlib
import re
import shutil
import sys

PAGES = ["README.md", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "NOTICE", "SECURITY.md", "docs", "packaging/README.md",
         "tests/faults/README.md"]
MOVED = {"docs/index.md": "index.md", "README.md": "overview.md"}
FOLDERS = ["core", "autograd", "nn", "optim", "parallel"]
NAMED = re.compile(r"^(?:template\s*<.*?>\s*)?(?:class|struct|enum class|enum)\s+(?:\[\[\w+\]\]\s*)?(\w+)(?![^{]*;$)")


def internal(root):
    """What is not installed: the expressions of triax_library() in cmake/TriaxSettings.cmake."""
    text = (root / "cmake/TriaxSettings.cmake").read_text()
    include, exclude = re.findall(r'internal (?:INCLUDE|EXCLUDE) REGEX\s+"([^"]+)"', text)
    return lambda path: re.search(include, f"/{path}") and not re.search(exclude.replace("\\\\", "\\"), f"/{path}")


def public_headers(root):
    hidden = internal(root)
    found = (path.relative_to(root) for folder in FOLDERS for path in (root / folder).rglob("*.h"))
    return [path for path in sorted(found) if not hidden(path)]


def blocks(text):
    """(contract, declarations) of what stands in the namespaces of a header, each a list of lines."""
    prose, code = [], []
    for line in [*text.splitlines(), ""]:
        comment = re.match(r"///? ?(?!<)(?:-- )?(.*)", line)
        outside = balanced(code)
        if code and outside and (comment or not line or line[0] == "}"):
            yield prose, code
            prose, code = [], []
        if outside and comment:
            prose.append(comment[1])
        elif line[:1] != "#" and not (outside and re.match(r"\s*$|}|(inline )?namespace\b", line)):
            code.append(line)
    if prose:
        yield prose, []


def balanced(lines):
    text = "\n".join(re.sub(r"//.*", "", line) for line in lines)
    return all(text.count(a) == text.count(b) for a, b in ("{}", "()"))


def without_private(lines):
    depth, kept, hidden = 0, [], None
    for line in lines:
        bare = re.sub(r"//.*", "", line)
        if line.strip() == "private:":
            hidden = depth
        elif hidden is not None and (line.strip() in ("public:", "protected:") or
                                     depth + bare.count("{") - bare.count("}") < hidden):
            hidden = None
        if hidden is None:
            kept.append(line)
        depth += bare.count("{") - bare.count("}")
    while len(kept) > 1 and not kept[-2].strip():
        del kept[-2]
    return kept


def names(code):
    """What a block declares."""
    found = []
    for line in code:
        if line.startswith((" ", "}", "//")):
            continue
        line = re.sub(r"__attribute__\(\(.*?\)\) *|\bTRIAX_HD\b *", "", line)
        name = NAMED.match(line) or re.match(r"using (\w+) =", line) or re.match(r"[^(=]*\b(\w+) =", line) or \
            re.search(r"(operator\W+|\b(?!decltype\b|explicit\b)\w+)\(", line) or re.search(r"(\w+)(?:\{.*)?;", line)
        if name and name[1] not in found:
            found.append(name[1].strip())
    return found


def text_of(prose):
    """Markdown: indented lines are samples, and < is no tag outside of code."""
    text = "\n".join("    " + line if line.startswith("  ") else line for line in prose)
    return re.sub(r"(`[^`]*`|^    .*)|<", lambda m: m[1] or "&lt;", text, flags=re.M)


def page_of(path, text):
    page, declared = f"# {path}\n\n`#include \"triax/{path}\"`\n", []
    for prose, code in blocks(text):
        own = names(code)
        if all(re.match(r"(class|struct) \w+;", line) for line in code):  # or no code: about what follows
            page += f"\n{text_of(prose)}\n"
            continue
        declared += own
        title = ", ".join(own[:4]) + (", ..." if len(own) > 4 else "")
        code = "\n".join(without_private(code))
        contract = f"{text_of(prose)}\n\n" if prose else ""
        page += f"\n## {title or 'More'}\n\n{contract}```cpp\n{code}\n```\n"
    return page, declared


def with_links(text, here, headers):
    """`nn/module.h` as a link."""
    def link(match):
        if pathlib.Path(match[1]) not in headers:
            return match[0]
        return f"[{match[0]}]({os.path.relpath(f'api/{match[1]}.md', here)})"

    return re.sub(r"(?<!\[)`([\w/]+\.h)`(?!\])", link, text)


def relinked(text, was):
    """The links of the page that was at `was`, to where pages are now."""
    old, new = (os.path.dirname(page) for page in (was, MOVED.get(was, was)))

    def link(match):
        target = os.path.normpath(os.path.join(old, match[1]))
        if ":" in match[1] or was not in MOVED and target not in MOVED:
            return match[0]
        return f"]({os.path.relpath(MOVED.get(target, target), new or '.')}"

    return re.sub(r"\]\(([^)#\s]+)", link, text)


def adapted(text, was, headers):
    """A page for MkDocs, which was at `was`: what belongs to a point of a list is indented by four columns, not two or
    three; a bar in code does not end the cell of a table."""
    here = pathlib.Path(MOVED.get(was, was)).parent
    parts = re.split(r"(^ *```.*?^ *```$)", text, flags=re.M | re.S)  # text, code, text, ...
    for i, part in enumerate(parts):
        if i % 2 == 0:
            part = re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), with_links(relinked(part, was), here, headers))
            parts[i] = re.sub(r"^ {2,3}(?=\S)", "    ", part, flags=re.M)
        elif part[0] == " ":
            parts[i] = re.sub("^", " " * (4 - len(part) + len(part.lstrip())), part, flags=re.M)
    return "".join(parts)


def main(root, to):
    for name in PAGES:
        copy = shutil.copytree if (root / name).is_dir() else shutil.copy
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        copy(root / name, to / name)
    headers = public_headers(root)
    index = "# The API\n\nThe public headers. A folder includes only folders above it.\n"
    for folder in FOLDERS:
        index += f"\n## {folder}\n\n| header | declares |\n|---|---|\n"
        for path in (path for path in headers if path.parts[0] == folder):
            page, declared = page_of(path, (root / path).read_text())
            target = to / "api" / f"{path}.md"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(page)
            some = ", ".join(f"`{name}`" for name in dict.fromkeys(declared[:8]))
            index += f"| [`{path}`]({path}.md) | {some}{', ...' if len(declared) > 8 else ''} |\n"
    (to / "api/index.md").write_text(index)
    for page in to.rglob("*.md"):
        if page != to / "api/index.md":
            page.write_text(adapted(page.read_text(), str(page.relative_to(to)), headers))
    for was, now in MOVED.items():
        (to / was).rename(to / now)
    first = to / "index.md"
    first.write_text(f"---\nhide: [toc]\n---\n{first.read_text()}")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
