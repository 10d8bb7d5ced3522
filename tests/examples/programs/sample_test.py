"""sample_test.py MINIGPT MPIRUN LLAMA: what `sample` prints: the same text for the same seed, on any mesh
and at every instruction level; what is typed is continued, and Ctrl-C ends an answer.

MPIRUN may be empty: then ranks are threads only."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile

from minigpt_program import RANKS_SHARING_CORES, mpirun, some_text, words

minigpt, launcher, llama = sys.argv[1:4]
MODEL = dict(layers=4, heads=4, width=32, context=16, steps=30, micro_batch=4, warmup=5, lr=0.01)
GREEDY = dict(temperature=0)
failures = []


def check(name, ok, *seen):
    print(f"{'ok' if ok else 'FAILED'}  {name}", flush=True)
    if not ok:
        failures.append(name)
        print(*(f"    {s!r}" for s in seen), sep="\n", flush=True)


class Sampler:
    """A trained model."""

    def __init__(self, program, path, **model):
        self.program, self.run = program, path
        data = path.with_suffix(".txt")
        data.write_text(some_text() + "é\n")
        subprocess.run([program, "train", *words(**MODEL, **model, data=data, out=path)], check=True,
                       stdout=subprocess.DEVNULL, env=RANKS_SHARING_CORES)

    def command(self, **flags):
        flags = dict(checkpoint=self.run, prompt="the ", tokens=40) | flags
        return [self.program, "sample", *words(**flags)]

    def result(self, text="", launch=(), level=None, **flags):
        """Exit code, stdout, stderr."""
        level = {"TRIAX_CPU_LEVEL": level} if level else {}
        done = subprocess.run([*launch, *self.command(**flags)], capture_output=True, timeout=60,
                              input=text if isinstance(text, bytes) else text.encode(),
                              env=RANKS_SHARING_CORES | level)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def text(self, **flags):
        code, out, error = self.result(**flags)
        return out if code == 0 else f"exit code {code}: {error}"


def seeds(name, s):
    one = s.text(seed=3)
    check(f"{name}: the prompt, 40 characters and a line break", len(one) == 45 and one.startswith("the "), one)
    check(f"{name}: the same seed, the same text", s.text(seed=3) == one, one)
    check(f"{name}: another seed, another text", s.text(seed=4) != one, one)
    three = s.text(seed=3, samples=3)
    texts = [three[i:i + 45] for i in (0, 49, 98)]
    check(f"{name}: three samples of which the first is the one",
          three == "---\n".join(texts) and texts[0] == one and len(set(texts)) == 3, three)
    check(f"{name}: the most likely token does not depend on the seed",
          s.text(seed=3, **GREEDY) == s.text(seed=4, top_k=1) == s.text(top_p=1e-9))
    check(f"{name}: no tokens", s.text(tokens=0) == "the \n", s.text(tokens=0))


def prompts(name, s):
    check(f"{name}: a prompt on standard input", s.text(prompt="-", text="the ") == s.text())
    code, _, error = s.result(prompt="-")
    check(f"{name}: nothing on standard input", code == 78 and "prompt is empty" in error, code, error)
    code, _, error = s.result(prompt="-", text=b"the \xff")
    check(f"{name}: no UTF-8 on standard input", code == 65 and "UTF-8" in error, code, error)
    long = some_text(100)
    code, out, error = s.result(prompt=long, **GREEDY)
    check(f"{name}: of a long prompt the model sees the end",
          code == 0 and out.startswith(long) and f"{len(long)} tokens; the model sees the last 16" in error
          and out[len(long):] == s.text(prompt=long[-16:], **GREEDY)[16:], code, out, error)


def meshes(name, s):
    for flags in (GREEDY, dict(seed=5), dict(seed=5, slide=1), dict(seed=5, slide=7)):
        one = s.text(**flags)
        for pp, tp in ((1, 2), (2, 1), (2, 2), (4, 1), *[(1, 4)] * (name == "minigpt")):
            mesh = dict(flags, pp=pp, tp=tp)
            check(f"{name}: {mesh} as one rank", s.text(comm="threads", ranks=pp * tp, **mesh) == one, one)
            if launcher and "slide" not in flags:
                check(f"{name}: {mesh} as one rank, under mpirun",
                      s.text(launch=mpirun(launcher, pp * tp), **mesh) == one, one)


def levels(name, s):
    one = s.text(**GREEDY)
    for level in ("baseline", "avx2", "avx512", "avx512_bf16", "amx"):
        code, out, error = s.result(level=level, **GREEDY)
        check(f"{name}: the same text at level {level}",
              out == one or (code == 78 and f"level '{level}'; this machine has" in error), code, out, error)
    for precision in ("fp32", "bf16", "fp16"):
        check(f"{name}: in {precision}", len(s.text(precision=precision)) == 45, s.text(precision=precision))


def conversation(name, s):
    talk = dict(interactive=True, prompt="a cat ", tokens=30)
    one = s.text(prompt="a cat sat on ", tokens=30)[len("a cat sat on "):]
    code, out, error = s.result(text="sat on \n", **talk)
    check(f"{name}: a line is continued", (code, out, error) == (0, one, ""), code, out, error)
    two = s.text(text="sat on \nthe dog", **talk)  # no line break at the end of the input
    check(f"{name}: two lines are", two.startswith(one) and len(two) == 62, two)
    code, out, error = s.result(text="sat on Ω\nsat on \n", **talk)
    check(f"{name}: what cannot be encoded is asked for again",
          (code, out) == (0, one) and "line: character '\\u{3a9}' U+03A9 at byte 7 is not in" in error, code, out, error)
    on_mesh = s.text(text="sat on \nthe dog", comm="threads", ranks=4, pp=2, tp=2, **talk)
    check(f"{name}: on four ranks", on_mesh == two, on_mesh, two)
    check(f"{name}: nothing is typed", s.text(text="", **talk) == "", s.text(text="", **talk))


def interrupted(name, s):
    """Ctrl-C in an answer that would take hours, then the end of the input."""
    talk = subprocess.Popen(s.command(interactive=True, tokens=10**9), stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=RANKS_SHARING_CORES)
    talk.stdin.write(b"sat\n")
    talk.stdin.flush()
    talk.stdout.read(20)  # the answer has begun
    talk.send_signal(signal.SIGINT)
    rest, error = talk.communicate(timeout=30)
    check(f"{name}: Ctrl-C ends an answer, and the program goes on",
          talk.returncode == 0 and error == b"" and rest.endswith(b"\n"), talk.returncode, error, rest[-50:])


with tempfile.TemporaryDirectory(prefix="triax-sample-") as path:
    for name, program, model in (("minigpt", minigpt, {}), ("llama", llama, dict(kv_heads=2, hidden=48))):
        sampler = Sampler(program, pathlib.Path(path) / name, **model)
        for group in (seeds, prompts, meshes, levels, conversation, interrupted):
            group(name, sampler)
if failures:
    sys.exit(f"{len(failures)} failed: " + "; ".join(failures))
