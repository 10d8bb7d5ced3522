"""corpus_test.py CORPUS REPOSITORY: the corpus is printable ASCII and holds the sources in order."""

import pathlib
import sys

corpus_path, repository = sys.argv[1], pathlib.Path(sys.argv[2])
corpus = pathlib.Path(corpus_path).read_bytes()
printable = set(b"\t\n") | set(range(32, 127))

strange = [i for i, byte in enumerate(corpus) if byte not in printable]
assert not strange, f"{corpus_path}: byte {corpus[strange[0]]} at {strange[0]} is not printable ASCII"

places = []
for name in ["README.md", "autograd/backward.h", "core/cpu/copy.cpp", "core/tensor.h", "nn/module.h"]:
    text = bytes(b for b in (repository / name).read_bytes() if b in printable)
    places.append(corpus.find(text))
    assert places[-1] >= 0, f"{corpus_path}: {name} as it is now is not in it; build the target corpus"
assert places == sorted(places), f"{corpus_path}: files are not sorted: {places}"
