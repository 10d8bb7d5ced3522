"""completion_test.py MINIGPT REPOSITORY: shells complete the words of a program, and its man page is in order.

bash always; zsh, fish, groff and mandoc where they are."""

import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time

minigpt, repository = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
scripts = repository / "scripts/completion"
launch = repository / "scripts/launch.sh"
# compopt works only while bash completes.
DRIVER = """source "$0"; compopt() { echo "compopt $*"; }
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _triax "$1"; printf '%s\\n' "${COMPREPLY[@]}" """


def offered(*words):
    """What bash is told, as a set: completions, and `compopt -o default` for names of files."""
    done = subprocess.run(["bash", "--norc", "-uc", DRIVER, scripts / "triax.bash", *words],
                          capture_output=True, text=True, timeout=60, check=True)
    assert not done.stderr, done.stderr
    return set(done.stdout.split("\n")) - {""}


def functions():
    files = {"compopt -o default"}
    assert {"train", "parity", "sample", "checkpoint", "help"} <= offered(minigpt, "")
    assert offered(minigpt, "tra") == {"train"}
    assert offered(minigpt, "checkpoint", "") == {"inspect", "verify"}
    assert offered(minigpt, "train", "--zero", "") == set("0123")
    assert offered(minigpt, "train", "--zero", "=", "2") == {"2"}
    assert {"1f1b", "zb-h1"} <= offered(minigpt, "schedule", "--schedule", "")
    assert offered(minigpt, "train", "--precision", "b") == {"bf16"}
    assert offered(minigpt, "train", "--resume", "l") == {"last-good"} | files
    assert offered(minigpt, "train", "--out", "r") == files
    assert offered(minigpt, "checkpoint", "verify", "") == files
    assert offered(minigpt, "train", "--steps", "") == set()
    shown = subprocess.run([minigpt, "help", "train"], capture_output=True, text=True, check=True).stdout
    assert offered(minigpt, "train", "--") == set(re.findall(r"^  (?:-h, )?(--[\w-]+)", shown, re.M))
    assert offered("/no/such/program", "") == set()
    assert offered(launch, "-n", "4", "") == files
    assert offered(launch, "-n", "4", "--", "") == files
    assert offered(launch, "-n", "4", "--", minigpt, "train", "--zero", "") == set("0123")
    with tempfile.TemporaryDirectory() as folder:  # nothing else is started
        assert offered(launch, "--", "touch", f"{folder}/a", "") == files
        assert not list(pathlib.Path(folder).iterdir())


def typed(folder, keys, wanted):
    """Does a bash at a terminal show `wanted` after the keys?"""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.environ.update(PS1="$ ", TERM="dumb", PATH=f"{minigpt.parent}:{os.environ['PATH']}")
        os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
    os.write(terminal, f"source {scripts}/triax.bash\n{keys}".encode())
    shown, end = "", time.monotonic() + 60
    while wanted not in shown and time.monotonic() < end:
        if select.select([terminal], [], [], 1)[0]:
            shown += os.read(terminal, 4096).decode(errors="replace")
    os.close(terminal)
    os.waitpid(child, 0)
    assert wanted in shown, f"{keys!r} gives {shown!r}; expected {wanted!r}"


def in_a_terminal():
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "my-book.txt").write_text("")
        typed(folder, "minigpt checkp\tins\t", "minigpt checkpoint inspect ")
        typed(folder, "minigpt train --sequ\t--data my\t", "--sequence-parallel --data my-book.txt ")
        typed(folder, "minigpt train --precision=b\t", "--precision=bf16 ")


def other_shells():
    if shutil.which("fish"):
        ask = ["fish", "--no-config", "-c", f"source {scripts}/triax.fish; complete -C '%s'"]
        for words, wanted in (("train --zero ", "0\n1\n2\n3\n"), ("tra", "train\t")):
            said = subprocess.run([*ask[:-1], ask[-1] % f"minigpt {words}"], capture_output=True, text=True, timeout=60,
                                  env={**os.environ, "PATH": f"{minigpt.parent}:{os.environ['PATH']}"}).stdout
            assert said.startswith(wanted), said
    if shutil.which("zsh"):
        subprocess.run(["zsh", "-n", scripts / "_triax"], check=True)


def manual():
    page = subprocess.run([minigpt, "manual"], capture_output=True, check=True).stdout
    for command in (["groff", "-man", "-Tutf8", "-ww", "-Z"], ["mandoc", "-Tlint", "-Wwarning"]):
        if not shutil.which(command[0]):
            continue
        done = subprocess.run(command, input=page, capture_output=True)
        said = (done.stderr + (done.stdout if command[0] == "mandoc" else b"")).decode()
        problems = [line for line in said.splitlines() if "missing date" not in line]  # which no page has
        assert not problems, "\n".join(problems)


functions()
in_a_terminal()
other_shells()
manual()
print("completions and the man page are as expected")
