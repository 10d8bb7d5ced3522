#!/usr/bin/env python3
"""Sends the metrics of a run to Weights & Biases or MLflow while it is trained, each step once. Ends with the run, whose
directory is read and not changed."""

import fcntl
import hashlib
import importlib
import os
import signal
import time

from run_files import Arguments, Fail, expect, member, metrics_of, parse, path, run

INTERVAL = 2  # seconds between two looks at the metrics


def to_wandb(wandb, name, identity):
    """Returns how the values of a step are sent, the last step that is there, and how to end."""
    tracked = wandb.init(id=identity, name=name, resume="allow")
    return lambda step, values: tracked.log(values, step=step), tracked.starting_step - 1, tracked.finish


def to_mlflow(mlflow, name, identity):
    found = mlflow.search_runs(filter_string=f"tags.triax = '{identity}'", output_format="list")
    again = {"run_id": found[0].info.run_id} if found else {"run_name": name, "tags": {"triax": identity}}
    metrics = mlflow.start_run(**again).data.metrics
    return lambda step, values: mlflow.log_metrics(values, step=step), int(metrics.get("step", 0)), mlflow.end_run


class Relay:
    def __init__(self, where, connect):
        self.where, self.connect = where, connect
        self.start, self.at, self.last = None, 0, b""  # of the first line; the line that was read last, and where it is
        self.sent, self.count, self.end = 0, 0, lambda: None

    def begin(self, start):
        """No two runs begin alike: the first line has times."""
        self.end()
        name = os.path.basename(os.path.abspath(self.where))
        self.send, self.sent, self.end = self.connect(name, hashlib.sha256(start).hexdigest()[:16])
        self.start, self.at, self.last = start, 0, b""

    def pass_on(self):
        """Sends the steps that are new; returns whether there are any. A run that is resumed cuts the file and repeats steps:
        trackers take no step again, so that those stay as they were first."""
        count, file = self.count, metrics_of(self.where)
        with open(file if os.path.isfile(file) else os.devnull, "rb") as lines:
            first = lines.readline()
            start = first.rstrip(b"}\n").split(b',"val_')[0]  # a validation may be added later
            if first.endswith(b"\n") and start != self.start:
                self.begin(start)
            lines.seek(self.at)
            if lines.read(len(self.last)) != self.last:
                self.at, self.last = lines.seek(0), b""
            for line in lines:
                if line.endswith(b"\n"):  # else it is being written
                    self.at, self.last = self.at + len(self.last), line
                    self.pass_line(line, f"relay: {file}, at byte {self.at}")
        return self.count > count

    def pass_line(self, line, source):
        record = parse(line, source)
        step = member(record, "step", int, source)
        if step > self.sent:
            self.send(step, {key: +value for key, value in record.items() if isinstance(value, (int, float))})
            self.sent, self.count = step, self.count + 1


def is_locked(where):
    """Returns whether a job writes to the run directory."""
    try:
        with open(f"{where}/lock", "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


def follow(relay, wait):
    busy = time.monotonic()
    while True:
        waited = time.monotonic() - busy >= wait
        ended = waited and not is_locked(relay.where)  # looked at before the last lines are read, and rarely: it is a lock
        if relay.pass_on() or (waited and not ended):
            busy = time.monotonic()
        elif ended:
            return
        time.sleep(max(0.0, min(INTERVAL, wait)))


def main():
    arguments = Arguments("triax-relay", __doc__)
    arguments.add_argument("run", metavar="RUN", type=path, help="a run directory")
    arguments.add_argument("--to", choices=["wandb", "mlflow"], required=True, help="its environment variables say the rest: "
                           "WANDB_PROJECT; MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME")
    arguments.add_argument("--once", action="store_true", help="send what is there and end")
    arguments.add_argument("--wait", metavar="SECONDS", type=float, default=60, help="end when no job has held the run "
                           "directory for so long; a job may be started again meanwhile (default: 60)")
    args = arguments.parse_args()
    expect(os.path.isdir(args.run), 66, f"relay: there is no {args.run}; expected a run directory, which train --out names")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the tracker's run
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a connection that a server closes is an error, not the end
    try:
        package = importlib.import_module(args.to)
    except ImportError as e:
        raise Fail(78, f"relay: --to {args.to}: {e}; expected the Python package\n  pip install {args.to}") from None
    relay = Relay(args.run, lambda *words: (to_wandb if args.to == "wandb" else to_mlflow)(package, *words))
    try:
        try:
            relay.pass_on() if args.once else follow(relay, args.wait)
        finally:
            relay.end()
    except Fail:
        raise
    except Exception as e:
        raise Fail(74, f"relay: {args.to}: {e!r}\n  Start it again: it goes on behind the last step that arrived.") from None
    print(f"{args.run}: {relay.count} steps sent to {args.to}, up to step {relay.sent}")
    return 0


if __name__ == "__main__":
    run(main)
