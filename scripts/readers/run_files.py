"""What the scripts that read the files of runs share: how they fail, and how they read."""

import argparse
import json
import os
import re
import signal
import sys

SMALL = 1 << 20  # bytes that a text of a run directory may have
FINITE = 1e300
KINDS = {str: "a text", bool: "true or false", dict: "an object", list: "an array", int: "a whole number from 0",
         float: "a number"}


class Fail(Exception):
    """Ends the program with one of the exit codes of docs/launching.md."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def expect(ok, code, text):
    if not ok:
        raise Fail(code, text)


class Arguments(argparse.ArgumentParser):
    def __init__(self, name, about):
        super().__init__(prog=name, description=about, allow_abbrev=False)

    def error(self, message):
        raise Fail(64, f"{self.prog}: {message}; `{self.prog} --help` lists all flags")


def path(text):
    """Returns the text of a path. Refuses an empty one, as a shell variable that is not set gives it."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty")
    return text


def run(main):
    """Ends the process with what main() returns, or with a message in the form of all triax programs."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        expect(sys.stdout, 73, "cannot write to stdout: it is closed")
        sys.stdout.reconfigure(errors="backslashreplace")
        code = main()
        sys.stdout.flush()
        sys.exit(code)
    except Fail as e:
        code, text = e.code, str(e)
    except MemoryError:
        code, text = 71, "out of host memory"
    except OSError as e:
        code, text = (74, f"{e.filename}: {e.strerror}") if e.filename else (73, f"cannot write to stdout: {e.strerror}")
    except KeyboardInterrupt:
        code, text = 130, "interrupted"
    except Exception as e:
        line = e.__traceback__.tb_next.tb_lineno if e.__traceback__.tb_next else 0
        code, text = 70, f"{e!r}\n  This is a mistake in {sys.argv[0]}, line {line}."
    lines = [without_controls(line) for line in text.split("\n")]
    os.write(2, os.fsencode(f"triax: error {code}: " + "\n".join(lines) + "\n"))
    os._exit(code)  # flushes nothing a second time


def without_controls(text):
    """With `?` for what steers terminals and for what is no UTF-8."""
    return re.sub("[\0-\x1f\x7f-\x9f\ud800-\udfff]", "?", text)


def printable(text):
    return without_controls(text if len(text) <= 120 else text[:120] + "...")


def small_text(path):
    """Empty if there is no such plain file."""
    if not os.path.isfile(path):
        return ""
    with open(path, "rb") as file:
        text = file.read(SMALL + 1)
    expect(len(text) <= SMALL, 65, f"{path}: more than {SMALL} bytes; expected a text of a run")
    return os.fsdecode(text)


def metrics_of(directory):
    """The run says where it wrote them; a directory that was moved or copied has its own."""
    said, own = small_text(f"{directory}/metrics_path").split("\n")[0], f"{directory}/metrics.jsonl"
    copied = os.path.basename(said) == "metrics.jsonl" and os.path.isfile(own) and os.path.isfile(
        os.path.join(os.path.dirname(said), "metrics_path"))  # said is another run's
    return said if os.path.isfile(said) and not copied else own


# JSON of files that are not to be trusted. `source` begins what is said about them.


def parse(text, source):
    """The object that bytes hold."""
    def members(pairs):
        found = dict(pairs)
        expect(len(found) == len(pairs), 65, f"{source}, a key is given twice")
        return found

    def refuse(constant):
        raise ValueError(f"{constant} in it")
    try:
        value = json.loads(text.decode(), object_pairs_hook=members, parse_constant=refuse)
    except json.JSONDecodeError as e:
        raise Fail(65, f"{source}, not JSON at character {e.pos + 1}, line {e.lineno}") from None
    except (ValueError, RecursionError) as e:
        raise Fail(65, f"{source}, not JSON: {printable(str(e))}") from None
    expect(isinstance(value, dict), 65, f"{source}, not a JSON object")
    return value


def fits(value, kind, most):
    if kind is int:
        return type(value) is int and 0 <= value <= most
    return type(value) is kind if kind is not float else type(value) in (int, float) and abs(value) <= FINITE


def typed(value, kind, source, most=1 << 62):
    """The value, if it is of a kind of KINDS."""
    if not fits(value, kind, most):
        raise Fail(65, f"{source} is {printable(json.dumps(value))}; expected {KINDS[kind]}" + f" to {most}" * (kind is int))
    return value


def member(record, key, kind, source, most=1 << 62):
    if type(record) is not dict or key not in record:
        raise Fail(65, f"{source}, has no {printable(key)}")
    value = record[key]
    return value if fits(value, kind, most) else typed(value, kind, f"{source}, {printable(key)}", most)


# Settings: lines `NAME = LITERAL`.


def literals(text):
    return dict(line.split(" = ", 1) for line in text.split("\n") if " = " in line)


def unquoted(literal):
    """The text that a literal in quotes stands for, any other as it is."""
    if len(literal) < 2 or literal[0] != '"' or literal[-1] != '"':
        return literal
    try:
        return str(json.loads(literal, strict=False))
    except ValueError:
        return literal[1:-1]
