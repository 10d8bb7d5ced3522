"""What nvidia-smi says of a GPU while something runs: clocks, power, temperature, memory."""

import statistics
import subprocess
import tempfile
from dataclasses import dataclass

FIELDS = ("clocks.sm", "clocks.mem", "power.draw", "temperature.gpu", "memory.used")


@dataclass(frozen=True)
class Watched:
    sm_mhz: tuple[float, float]  # median and lowest while power was drawn
    memory_mhz: float
    watts: float  # median
    degrees: float  # highest
    memory_mib: float  # highest, of all processes


def query(fields: tuple[str, ...], index: int) -> list[str]:
    """One line of values. Raises RuntimeError where there is no driver."""
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "-i", str(index)]
    try:
        done = subprocess.run(
            [*command, "--format=csv,noheader,nounits"], capture_output=True, text=True
        )
    except OSError as error:
        raise RuntimeError(f"nvidia-smi: {error.strerror}") from None
    if done.returncode != 0:
        raise RuntimeError(f"nvidia-smi: {done.stdout}{done.stderr}")
    return [value.strip() for value in done.stdout.split(",")]


def index_of(device: str) -> int:
    """1 of cuda:1."""
    return int(device.partition(":")[2] or 0)


class Watch:
    """with Watch("cuda:0") as watch: ...; then watch.result, None if nothing was seen."""

    def __init__(self, device: str):
        self.index, self.result = index_of(device), None

    def __enter__(self) -> "Watch":
        self.log = tempfile.TemporaryFile("w+")
        command = ["nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "-i", str(self.index)]
        command += ["--format=csv,noheader,nounits", "-lms", "100"]
        self.child = subprocess.Popen(command, stdout=self.log, stderr=subprocess.DEVNULL)
        return self

    def __exit__(self, *_) -> None:
        self.child.terminate()
        self.child.wait()
        self.log.seek(0)
        self.result = summary(self.log.read())
        self.log.close()


def number(text: str) -> float:
    """0 of what is not supported."""
    try:
        return float(text)
    except ValueError:
        return 0.0


def summary(text: str) -> Watched | None:
    """Of lines of FIELDS; the last one may be cut. Clocks count where power is at least half of the
    highest: a GPU that waits clocks down."""
    rows = [[number(value) for value in line.split(",")] for line in text.splitlines()]
    rows = [row for row in rows if len(row) == len(FIELDS)]
    if not rows:
        return None
    highest = max(row[2] for row in rows)
    busy = [row for row in rows if row[2] >= highest / 2]
    sm, memory, watts, _, _ = zip(*busy)
    return Watched(
        sm_mhz=(statistics.median(sm), min(sm)),
        memory_mhz=statistics.median(memory),
        watts=statistics.median(watts),
        degrees=max(row[3] for row in rows),
        memory_mib=max(row[4] for row in rows),
    )
