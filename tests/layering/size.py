"""How large the house is: lines in all, files of a folder, methods of a class, lines of a function.

A ceiling is there to make you think; what is above one today is named below with its size, and may only shrink.
"""

import collections
import re

PRODUCT = ["core", "autograd", "nn", "optim", "parallel", "examples"]
CODE = (".h", ".cpp", ".cu", ".cuh")

MAX_LINES, MAX_FILES, MAX_METHODS, MAX_FUNCTION = 63_070, 25, 20, 40

# Files directly in a folder.
CROWDED = {}
# Methods of a class, without constructors. Interfaces have one for each kernel, op or collective.
WIDE = {"core/backend.h Backend": 53, "core/cpu/cpu.h Cpu": 43, "core/cuda/cuda.h Cuda": 53, "core/meta/meta.cpp MetaBackend": 50,
        "core/tensor.h Tensor": 33, "parallel/comm/communicator.h Communicator": 28,
        "core/cpu/products/tile_products.h TileWorker": 22, "parallel/checkpoint/directory.h CheckpointDirectory": 21,
        "parallel/program/deepspeed/reader.h DeepSpeedReader": 30, "parallel/tensor/tensor_parallel.h TensorParallel": 28,
        "parallel/train/step/replica.h Replica": 21, "parallel/train/step/step.h Step": 26, "parallel/train/trainer.h Trainer": 28}
# Lines of a function's body.
LONG = {"examples/text/make_shards.cpp make_shards": 41}

CLASS = re.compile(r"^(?P<indent> *)(?:template <.*> *)?(?:struct|class) (?:\[\[\w+\]\] |alignas\([^)]*\) )?(?P<name>[\w:]+)"
                   r"(?:<[^;{}]*>)?(?: final)?(?:\s*:[^:;{}][^;{}]*)?\s*\{$")
CONTROL = re.compile(r"^\s*(?:if|for|while|switch|else|do|try|return|namespace|struct|class|union|enum|case|extern)\b")
STRING = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'|//.*')


def bare(line):
    """The line without what is in strings and comments."""
    return STRING.sub(lambda m: "" if m[0].startswith("//") else '""', line).rstrip()


def statements(lines):
    """(first line, last line, text) of what begins at one indentation and reaches to `;`, `{` or `}`."""
    begin, text = 0, ""
    for number, line in enumerate(lines):
        if not text:
            begin = number
        text = f"{text} {line.strip()}" if text else line
        if not line or line.lstrip().startswith("#") or line.endswith((";", "{", "}", ":")):
            if text.strip() and not text.lstrip().startswith("#"):
                yield begin, number, text
            text = ""


def without_templates(text):
    """`std::function<void(int)> f` as `std::function f`."""
    while (shorter := re.sub(r"<[^<>]*>", "", text)) != text:
        text = shorter
    return text


def called(text):
    """The name of the function that a declaration or the head of a definition declares; None for anything else."""
    if CONTROL.match(text):
        return None
    head = without_templates(re.sub(r"->", "", text).replace("operator<", "operator").replace("operator>", "operator"))
    found = re.match(r"^[^=({;]*?((?:[\w]+::)*(?:~?\w+|operator\s*(?:\(\)|\[\]|[^\s(]*)))\s*\(", head)
    if not found or found[1] in ("decltype", "static_assert", "alignas", "noexcept", "sizeof"):
        return None
    return found[1]


class Sizes:
    """What was found in one file."""

    def __init__(self, text):
        lines = [bare(line) for line in text.splitlines()]
        self.methods = collections.Counter()  # of classes
        self.functions = []  # (lines of the body, name, line)
        inside = []  # (indentation of members, class)
        end_of_body = -1
        for begin, last, head in statements(lines):
            indent = len(head) - len(head.lstrip())
            while inside and indent < inside[-1][0] and lines[begin].strip().startswith("}"):
                inside.pop()
            if begin <= end_of_body:
                continue
            if found := CLASS.match(head):
                inside.append((indent + 2, found["name"]))
            elif indent == (inside[-1][0] if inside else 0) and (name := called(head)):
                if inside and not re.fullmatch(rf"~?{re.escape(inside[-1][1])}", name) and "friend" not in head:
                    self.methods[inside[-1][1]] += 1
                if head.endswith("{"):
                    closing = " " * indent + "}"
                    end_of_body = next((n for n in range(last + 1, len(lines)) if re.match(rf"{closing}(?! catch)", lines[n])), last)
                    self.functions.append((end_of_body - last - 1, name, begin + 1))


def above(found, ceiling, exceptions, say):
    """What is above the ceiling, and exceptions that could be lower or are gone; found: {name: size}."""
    for name, size in sorted(found.items()):
        limit = exceptions.get(name, ceiling)
        if size > limit:
            yield say(name, size, limit)
        elif name in exceptions and size < limit:
            yield f"{name}: {size} now; lower its exception of {limit} in size.py" if size > ceiling else \
                f"{name}: {size} now; remove its exception from size.py"
    for name in sorted(exceptions.keys() - found.keys()):
        yield f"{name}: is no more; remove its exception from size.py"


PLATE = re.compile(r"Lives here: .+\nUsed from outside: (?P<used>.+)\nNever enters: .+\n")


def check_plates(files, read):
    """Folders of the product whose README.md does not begin with a door plate, or does not name a header in it that is
    included from outside of the folder and those below it."""
    product = [file for file in files if file.endswith(CODE) and file.split("/")[0] in PRODUCT]
    used = collections.defaultdict(set)
    for file in product:
        for folder, header in re.findall(r'^#include "(?:triax/)?([\w/]+)/(\w+\.h)"', read(file), re.MULTILINE):
            if not file.startswith(folder + "/"):
                used[folder].add(header)
    for folder in sorted({file.rpartition("/")[0] for file in product}):
        name = f"{folder}/README.md"
        plate = name in files and PLATE.match(read(name))
        if not plate:
            yield f"{name}: expected three lines, `Lives here: ...`, `Used from outside: ...`, `Never enters: ...`"
        elif missing := sorted(header for header in used[folder] if not re.search(rf"\ball\b|`{header}`", plate["used"])):
            yield f"{name}: `Used from outside` does not name {', '.join(missing)}"


def check_sizes(files, read):
    """(notes, violations) of all that git knows; `read` gives the text of a file."""
    folders = collections.Counter(file.rpartition("/")[0] for file in files
                                  if "/" in file and not file.endswith("/README.md"))
    methods, functions, lines = {}, {}, collections.Counter()
    for file in files:
        room = file.split("/")[0]
        if not file.endswith(CODE) or room not in PRODUCT:
            continue
        text = read(file)
        lines[room] += text.count("\n")
        sizes = Sizes(text)
        methods |= {f"{file} {name}": count for name, count in sizes.methods.items()}
        for length, name, line in sizes.functions:
            functions[f"{file} {name}"] = max(length, functions.get(f"{file} {name}", 0))
    violations = [
        *check_plates(files, read),
        *above({"lines": sum(lines.values())}, MAX_LINES, {},
               lambda _, size, limit: f"{' '.join(PRODUCT)}: {size} lines; {limit} is the ceiling, so remove as many as you add"),
        *above(dict(folders), MAX_FILES, CROWDED,
               lambda name, size, limit: f"{name}: {size} files; {limit} is the ceiling, so make rooms of it"),
        *above(methods, MAX_METHODS, WIDE,
               lambda name, size, limit: f"{name}: {size} methods; {limit} is the ceiling, so split the class"),
        *above(functions, MAX_FUNCTION, LONG,
               lambda name, size, limit: f"{name}: {size} lines; {limit} is the ceiling, so split the function")]
    largest = lambda found, count: ", ".join(f"{size} {name}" for name, size in
                                             sorted(found.items(), key=lambda item: -item[1])[:count])
    notes = [f"{sum(lines.values())} of {MAX_LINES} lines: " + ", ".join(f"{room} {lines[room]}" for room in PRODUCT),
             f"most methods: {largest(methods, 1)}", f"longest functions: {largest(functions, 10)}"]
    return notes, violations
