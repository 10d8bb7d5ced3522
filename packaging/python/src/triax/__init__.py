"""triax from Python: checkpoints and their logits, plans, schedules, parity, metrics, tensors by DLPack."""

import collections.abc
import json
import pathlib

import numpy as np

from triax import _triax
from triax._triax import Tensor, from_dlpack
from triax.error import Error

__version__ = _triax.version
__all__ = ["Checkpoint", "Error", "Tensor", "from_dlpack", "load", "logits", "metrics", "parity", "plan", "schedule"]


class Checkpoint(collections.abc.Mapping):
    """A checkpoint of any mesh: its whole tensors by name, `step`, `settings` and `path`. Every byte was checked."""

    def __init__(self, path):
        self._file = _triax.CheckpointFile(str(path))
        self._names = self._file.names()
        self.path, self.step = self._file.path, self._file.step
        self.settings = {name: _value(text) for name, text in self._file.settings().items()}

    def __getitem__(self, name) -> Tensor:
        """Reads a tensor from the file; optimizer state is `block0.up.weight@m`."""
        if name not in self._names:
            raise KeyError(name)
        return self._file.read(name)

    def __iter__(self):
        return iter(self._names)

    def __len__(self):
        return len(self._names)

    def logits(self, ids) -> Tensor:
        """Returns the logits [.., tokens, vocabulary], in f32, of minigpt's or triax-llama's model for token ids
        [tokens] or [sequences, tokens]: lists, arrays or a Tensor. The first call loads the model."""
        return self._file.logits(ids if isinstance(ids, Tensor) else from_dlpack(np.array(ids)))


def load(path) -> Checkpoint:
    """Opens RUN/step-N, or the newest checkpoint of a run directory."""
    return Checkpoint(path)


def logits(checkpoint, ids) -> Tensor:
    """Returns Checkpoint.logits, of a checkpoint or of one at a path."""
    return (checkpoint if isinstance(checkpoint, Checkpoint) else load(checkpoint)).logits(ids)


def plan(program="minigpt", **settings) -> list[dict]:
    """Returns what `plan --json` of a program prints for these flags (`micro_batch=1` is `--micro-batch 1`): memory
    and step time of each way to train, the best first; `fits` says whether the memory is enough."""
    return [json.loads(line) for line in _triax.plan(program, _words("plan", settings))]


def parity(program="minigpt", **settings) -> dict:
    """Trains on one rank and on the threads of a mesh, as `parity` of a program for these flags. Returns `equal`;
    `steps`, each with `loss`, `mesh_loss`, `norm`, `mesh_norm`; and the first `difference`, if there is one."""
    found, names = _triax.parity(program, _words("parity", settings)), ("loss", "mesh_loss", "norm", "mesh_norm")
    parts = ("step", "what", "name", "how_much", "guess")
    return {"equal": found.difference is None,
            "steps": [dict(zip(names, step)) for step in found.steps],
            "difference": found.difference and {part: getattr(found.difference, part) for part in parts}}


def schedule(name="1f1b", pp=4, micros=8, chunks=0, times=(1, 1, 1, 0)) -> dict:
    """Returns the timeline of a pipeline schedule, as `schedule --json` of a program. `times`: of a stage's forward,
    backward of the input, of the weights, and the latency of a link. chunks 0: as many as the schedule has by default."""
    return json.loads(_triax.schedule(name, pp, micros, chunks, times))


def metrics(run) -> list[dict]:
    """Returns the lines of RUN/metrics.jsonl. A last line that is being written is left out."""
    path = pathlib.Path(run, "metrics.jsonl")
    try:
        lines = path.read_text().splitlines(keepends=True)
    except OSError as error:
        raise Error(66, f"metrics: {path}: {error.strerror}; expected a run directory") from None
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _words(verb, settings) -> list[str]:
    """Returns the words of a verb: `["plan", "--micro-batch=1"]`."""
    texts = {name: str(value).lower() if isinstance(value, bool) else value for name, value in settings.items()}
    return [verb, *(f"--{name.replace('_', '-')}={text}" for name, text in texts.items())]


def _value(text):
    """Returns a saved setting as a Python value."""
    try:
        return json.loads(text)
    except ValueError:
        return text
