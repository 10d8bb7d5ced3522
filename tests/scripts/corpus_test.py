"""corpus_test.py CORPUS REPOSITORY [JARGON]: the corpus is prose in few characters, or holds the sources in order.

JARGON is given where the corpus was made of it. How prose is found in a text is tested on a small one.
"""

import os
import pathlib
import subprocess
import sys

corpus_path, repository, of_jargon = sys.argv[1], pathlib.Path(sys.argv[2]), len(sys.argv) > 3
corpus = pathlib.Path(corpus_path).read_bytes()
printable = set(b"\t\n") | set(range(32, 127))

strange = [i for i, byte in enumerate(corpus) if byte not in printable]
assert not strange, f"{corpus_path}: byte {corpus[strange[0]]} at {strange[0]} is not printable ASCII"

if of_jargon:
    assert len(corpus) > 900_000, f"{corpus_path}: {len(corpus)} bytes; expected about a million"
    assert len(set(corpus)) < 80, f"{corpus_path}: {len(set(corpus))} distinct characters; expected fewer than 80"
    train = (repository / "scripts/train.sh").read_text()
    prompt = train.split('--prompt "')[1].split('"')[0]
    assert set(prompt.encode()) <= set(corpus), f"train.sh: the prompt {prompt!r} has characters that are not in it"
else:
    places = []
    for name in ["README.md", "autograd/backward.h", "core/cpu/copy.cpp", "core/tensor.h", "nn/module.h"]:
        text = bytes(b for b in (repository / name).read_bytes() if b in printable)
        places.append(corpus.find(text))
        assert places[-1] >= 0, f"{corpus_path}: {name} as it is now is not in it; build the target corpus"
    assert places == sorted(places), f"{corpus_path}: files are not sorted: {places}"

TEXT = """
                     Table of Contents

   :baud rate: /bawd/, n.

   [common; simplified] Bits per second — hence “kilobaud” for a
   thousand {bit}s of them, which isn't what the word once
   meant.

   It is often said of modems, of which few are left in this world.

   │ glyph │ description of a sign that only a table has, in lower case. │

   if (x == 3) { this is no prose but a program with many small words. }

   :modem: n.

   See {baud rate}.
"""
PROSE = """baud rate: Bits per second - hence "kilobaud" for a
thousand bits of them, which isn't what the word once
meant.

It is often said of modems, of which few are left in this world.

"""
found = subprocess.run(["awk", "-f", repository / "cmake/prose.awk"], input=TEXT, capture_output=True, text=True,
                       check=True, env={**os.environ, "LC_ALL": "C"}).stdout
assert found == PROSE, f"prose.awk: of the small text it makes {found!r}"
