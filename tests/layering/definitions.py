"""C++'s one-definition rule, as far as a search can check it: one name, one class.

Two classes of one name in one program are no error of the linker, which keeps one of two functions of the same name: with
other members behind the name that one frees or reads what is not there, and whether it is taken depends on what the
compiler inlines.
"""

import re

NAMESPACE = re.compile(r"^(?:inline )?namespace(?: ([\w:]+))? \{")
END = re.compile(r"^\}  // namespace")
# At the line's begin: clang-format indents classes inside of classes and functions, but not those inside of namespaces.
CLASS = re.compile(r"^(?:template <.*> )?(?:struct|class|union|enum(?: class| struct)?)(?: alignas\([^)]*\)| \[\[\w+\]\])? "
                   r"([A-Za-z_][\w:]*(?:<[^{};]*>)?)(?: final)?\s*(?::[^:{};][^{};]*)?\{")
MAIN = re.compile(r"^int main\(", re.M)


def definitions(text):
    """(line, qualified name) of every class and enumeration; those without linkage to other files are left out."""
    inside, lines = [], text.splitlines()
    for number, line in enumerate(lines, 1):
        if opened := NAMESPACE.match(line):
            if not line.rstrip().endswith("}"):
                inside.append(opened[1])
        elif END.match(line):
            inside = inside[:-1]
        elif None not in inside and (found := CLASS.match(" ".join(lines[number - 1:number + 2]))) \
                and found.start(1) < len(line):
            yield number, "::".join([*inside, found[1]])


def program(file, text):
    """The program that a file is in; an empty string if every program may have it."""
    if MAIN.search(text):
        return file
    folder = file.split("/")
    if folder[0] in ("tests", "bench") and folder[1] != "support":
        return "/".join(folder[:2])
    return ""


def check_definitions(texts):
    """What is defined twice, of {file: text}."""
    seen = {}
    for file, text in sorted(texts.items()):
        here = program(file, text)
        for number, name in definitions(text):
            for other_file, other_number, there in seen.setdefault(name, []):
                if other_file != file and (here == there or not here or not there):
                    yield (f"{file}:{number}: one-definition rule: {name} is also defined in {other_file}:{other_number}; "
                           "rename one, or put it into an unnamed namespace")
            seen[name].append((file, number, here))
