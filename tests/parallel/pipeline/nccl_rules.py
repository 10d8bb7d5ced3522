"""nccl_rules.py: plays a pipeline schedule under the rules of NCCL and of the executor, to a fixed point.

    minigpt schedule --schedule interleaved --pp 2 --micros 5 --json | nccl_rules.py --order start

Prints the circle of waits if the schedule hangs; the exit status is then 1. No rule depends on times, so whether a schedule
hangs does not either: an event comes about when all that it waits for has, and what is left at the end waits in a circle.

The rules, and where the code has them:

* The host calls the actions of a list in order; it never waits for a transfer (`NcclComm::queue`, `NcclOperation::wait` in
  parallel/comm/gpu/nccl_comm.cpp: events hold streams). Kernels run in the order of calls on one compute stream.
* An action calls the receive of its input, waits for it on the compute stream, computes, and calls the send of its output
  (`Pipeline::forward`, `backward`). On a GPU a receive is called when it is needed (`Incoming::take` with `ahead` false).
* Every link has a communicator of two ranks for either direction (`Links`), each with a stream of its own (`NcclHandle`). A
  transfer starts after all that the compute stream held at the call, and after the transfer before it on its stream.
  Other transfers do not hold it up: those of all communicators fit on the GPU at once (`Traffic`, `maxCTAs`).
* A receive ends when its send has started, too. A send ends when its receive has started, or, if NCCL's buffer has `room` for
  some messages, when it has started and the message that many sends before it was received. The nth send on a channel meets the
  nth receive there, which has to be of the same handover.
* Sends are waited for at the end of the list, on the compute stream (`Pipeline::execute`); in inference the oldest one before
  an action that finds 2 * stages of them in flight (`drop_finished_sends`). That none has ended is the worst case.
* With `tp` above 1 every pass has a collective with the other ranks of its stage, which the compute stream waits for
  (parallel/tensor). It stands for those of replicas as well, who run the same list, too.
* After the list, in training, both ends of a ring add the gradients of a tied table (`DataParallel::finish`), and all ranks
  their losses and norms (`Step::add_up`). A V has both ends on one stage. A second step adds no circle: nothing of the first
  waits for it.

Three rules can be made stricter than the code:

* `host`: `compute`, it waits for the compute stream after every call: for a copy from pageable memory, or a loss that is read;
  `first`, for the whole device in the first pass of each kind in each chunk: for kernels that are loaded at their first
  launch (why `prepare_nccl` sets CUDA_MODULE_LOADING=EAGER); `device`, for the whole device before every call and every pass:
  for cudaFree, by which `Pool` makes room where no memory is left.
* `order`: NCCL_LAUNCH_ORDER_IMPLICIT=1. A transfer starts after the one called before it on its GPU has started (`start`)
  or, with drivers before CUDA 12.3, has ended (`completion`).
"""

import argparse
import collections
import dataclasses
import functools
import json
import sys

HOSTS, ORDERS = ("free", "compute", "first", "device"), ("free", "start", "completion")
Action = collections.namedtuple("Action", "kind chunk micro")
Handover = collections.namedtuple("Handover", "kind micro source target")  # from one virtual stage to another
Transfer = collections.namedtuple("Transfer", "start end")
Message = collections.namedtuple("Message", "handover channel")
Step = collections.namedtuple("Step", "action receive send")  # its messages, None where there is none


@dataclasses.dataclass(frozen=True)
class Rules:
    tp: int = 1
    room: int = 0  # messages that a channel's buffer holds; 0: a send ends when it is received
    host: str = "free"
    order: str = "free"

    def __str__(self):
        return f"tp {self.tp}, room {self.room}, host {self.host}, order {self.order}"


@dataclasses.dataclass(frozen=True)
class Shape:
    """As PipelineShape in parallel/pipeline/schedule.h."""
    stages: int
    chunks: int
    micros: int
    placement: str

    def along(self, chunk, place):
        return self.stages - 1 - place if self.placement == "v" and chunk % 2 else place

    def virtual_stage(self, stage, chunk):
        return chunk * self.stages + self.along(chunk, stage)

    def stage_of(self, virtual_stage):
        return self.along(*divmod(virtual_stage, self.stages))

    def handover(self, stage, action, sends):
        """Returns what an action sends or receives; None at the ends of the model, and for gradients of weights."""
        if action.kind == "backward_weight":
            return None
        up = action.kind == "forward"
        here = self.virtual_stage(stage, action.chunk)
        there = here + 1 if up == sends else here - 1
        if not 0 <= there < self.stages * self.chunks:
            return None
        ends = (here, there) if sends else (there, here)
        return Handover("activation" if up else "gradient", action.micro, *ends)

    def stays(self, handover):
        return self.stage_of(handover.source) == self.stage_of(handover.target)

    def message(self, stage, action, sends):
        """Returns a handover to or from another stage, and its channel: the link, and the direction."""
        handover = self.handover(stage, action, sends)
        if not handover or self.stays(handover):
            return None
        cut = min(handover.source, handover.target)
        return Message(handover, (cut if self.placement == "v" else cut % self.stages, handover.kind))


@functools.lru_cache(maxsize=2)
def steps_of(shape, lists):
    """Returns the lists with the messages of every action."""
    return [[Step(a, shape.message(stage, a, sends=False), shape.message(stage, a, sends=True)) for a in actions]
            for stage, actions in enumerate(lists)]


class Play:
    """The events of a schedule. Each has a name and a list of those that it waits for, with the reason."""

    def __init__(self, shape, lists, rules, trains=True):
        self.shape, self.rules, self.trains = shape, rules, trains
        self.names, self.waits = [], []
        self.buffered = []  # ends of sends whose last wait is that for room in the buffer
        self.ends_of_channels = collections.defaultdict(lambda: ([], []))  # sends, receives
        self.meetings = collections.defaultdict(list)  # transfers, by collective
        for tp_rank in range(rules.tp):
            for stage, steps in enumerate(steps_of(shape, tuple(map(tuple, lists)))):
                Rank(self, stage, tp_rank).run(steps)
        self.problem = self.match()
        self.set_room(rules.room)

    def set_room(self, room):
        """Plays once more, with another room."""
        self.rules = dataclasses.replace(self.rules, room=room)
        for end in self.buffered:
            self.waits[end].pop()
        self.buffered.clear()
        for sends, receives in self.ends_of_channels.values():
            self.wait_for_room([send for _, send in sends], [receive for _, receive in receives])
        self.happened = self.happen()

    def match(self):
        """Joins both sides of every transfer. Returns what is wrong with them, or nothing."""
        for transfers in self.meetings.values():
            for transfer in transfers:
                self.waits[transfer.end] += [(other.start, "all ranks have to start") for other in transfers]
        for sends, receives in self.ends_of_channels.values():
            if [handover for handover, _ in sends] != [handover for handover, _ in receives]:
                return f"receives are not in the order of sends: {receives} of {sends}"
            for (_, send), (_, receive) in zip(sends, receives):
                self.waits[receive.end].append((send.start, "the sender has to start"))
        return ""

    def wait_for_room(self, sends, receives):
        room = self.rules.room
        for n in range(room, min(len(sends), len(receives))):
            wait = (receives[n - room].end, "the buffer is full until then") if room else \
                (receives[n].start, "the receiver has to start")
            self.waits[sends[n].end].append(wait)
            self.buffered.append(sends[n].end)

    def happen(self):
        """Lets every event happen whose waits are over, until none is left. Returns whether each has happened."""
        missing = [len(waits) for waits in self.waits]
        followers = [[] for _ in self.waits]
        for event, waits in enumerate(self.waits):
            for earlier, _ in waits:
                followers[earlier].append(event)
        ready = [event for event, count in enumerate(missing) if count == 0]
        happened = [False] * len(missing)
        while ready:
            event = ready.pop()
            happened[event] = True
            for follower in followers[event]:
                missing[follower] -= 1
                if missing[follower] == 0:
                    ready.append(follower)
        return happened

    def hangs(self):
        return not all(self.happened)

    def name(self, event):
        (stage, tp_rank), what, of = self.names[event]
        rank = f"stage {stage}" + (f", tp rank {tp_rank}" if self.rules.tp > 1 else "")
        return f"{rank}: {what} {of if isinstance(of, str) else str_of(of)}"

    def circle(self):
        """Returns the circle of waits: events, and what each waits for. Every event that has not happened leads into one."""
        event, path = self.happened.index(False), {}
        while event not in path:
            path[event] = next(wait for wait in self.waits[event] if not self.happened[wait[0]])
            event = path[event][0]
        events = list(path)
        return [f"{self.name(e)}\n    waits for {self.name(path[e][0])}: {path[e][1]}" for e in events[events.index(event):]]


def str_of(what):
    if isinstance(what, Action):
        return f"{what.kind} of micro-batch {what.micro}, chunk {what.chunk}"
    return f"{what.kind} of micro-batch {what.micro} from virtual stage {what.source} to {what.target}"


class Rank:
    """What one rank calls, in order."""

    def __init__(self, play, stage, tp_rank):
        self.play, self.stage, self.tp_rank = play, stage, tp_rank
        self.shape, self.rules = play.shape, play.rules
        self.compute = None   # the last event on the compute stream
        self.host = None      # what the host waited for last
        self.called = None    # the transfer called last
        self.streams = {}     # the last transfer, by communicator
        self.sends = collections.deque()  # those that no wait has followed
        self.collectives = collections.Counter()
        self.met = set()      # kinds and chunks of passes so far

    def event(self, what, of, waits):
        if self.host is not None:
            waits.append((self.host, "the host waits for it"))
        self.play.names.append(((self.stage, self.tp_rank), what, of))
        self.play.waits.append(waits)
        return len(self.play.waits) - 1

    def behind_compute(self, why):
        return [] if self.compute is None else [(self.compute, why)]

    def queue(self, what, of, *waits):
        """Queues work on the compute stream."""
        self.compute = self.event(what, of, [*self.behind_compute("the compute stream"), *waits])
        if self.rules.host == "compute":
            self.host = self.compute

    def host_waits_for_device(self, of):
        ends = [(last.end, "the whole device") for last in self.streams.values()]
        self.host = self.event("the host's wait for the device before", of,
                               [*self.behind_compute("the whole device"), *ends])

    def transfer(self, what, of, communicator):
        if self.rules.host == "device":
            self.host_waits_for_device(of)
        last, before = self.streams.get(communicator), self.called
        waits = self.behind_compute("queued before it on the compute stream")
        if last:
            waits.append((last.end, "the stream of its communicator"))
        if before and self.rules.order == "start":
            waits.append((before.start, "NCCL's order of launches"))
        elif before and self.rules.order == "completion":
            waits.append((before.end, "NCCL's order of launches"))
        start = self.event(f"start of {what}", of, waits)
        self.called = Transfer(start, self.event(f"end of {what}", of, [(start, "its start")]))
        self.streams[communicator] = self.called
        return self.called

    def message(self, what, message):
        channel = (message.channel, self.tp_rank)
        transfer = self.transfer(f"the {what} of the", message.handover, channel)
        sends, receives = self.play.ends_of_channels[channel]
        (sends if what == "send" else receives).append((message.handover, transfer))
        return transfer

    def collective(self, of, group):
        self.collectives[group] += 1
        transfer = self.transfer("the collective of", of, group)
        self.play.meetings[group, self.collectives[group]].append(transfer)
        self.queue("the work after the collective of", of, (transfer.end, "a collective"))

    def run(self, steps):
        for step in steps:
            if not self.play.trains and len(self.sends) >= 2 * self.shape.stages:
                self.queue("the work after the oldest send, before", step.action, (self.sends.popleft().end, "a send"))
            self.take(step)
        sends = [(send.end, "a send of the list") for send in self.sends]
        self.queue("the end of", "the list", *sends)
        if self.play.trains:
            self.finish()

    def take(self, step):
        action = step.action
        if step.receive:
            receive = self.message("receive", step.receive)
            self.queue("the wait for the", step.receive.handover, (receive.end, "a receive"))
        first = (action.kind, action.chunk) not in self.met
        self.met.add((action.kind, action.chunk))
        if self.rules.host == "device" or (self.rules.host == "first" and first):
            self.host_waits_for_device(action)
        self.queue("the", action)
        if self.rules.tp > 1:
            self.collective(action, ("tp", self.stage))
        if step.send:
            self.sends.append(self.message("send", step.send))

    def finish(self):
        last = self.shape.stages - 1
        if self.shape.placement == "ring" and self.stage in (0, last):
            self.collective("both ends", ("ends", self.tp_rank))
        self.collective("the world", ("world",))


def read(text):
    """Returns the shape and the lists of what `minigpt schedule --json` printed, whose handovers have to be those here."""
    data = json.loads(text)
    shape = Shape(data["stages"], data["chunks"], data["micros"], data["placement"])
    lists = [[] for _ in range(shape.stages)]
    for a in data["actions"]:
        if a["kind"] not in ("offload", "reload"):  # these never leave their stage
            lists[a["stage"]].append(Action(a["kind"], a["chunk"], a["micro"]))
    expected = {Handover(h["kind"], h["micro"], h["from"], h["to"]) for h in data["handovers"]}
    found = {shape.handover(s, a, sends) for s, actions in enumerate(lists) for a in actions for sends in (True, False)}
    if found - {None} != expected:
        raise ValueError(f"handovers {sorted(found - {None} ^ expected)[:4]} are only here or only in the program's")
    return shape, lists


def forward_only(shape):
    """Returns the lists of inference, as `forward_only` in parallel/pipeline/schedule.cpp."""
    groups = max(1, shape.micros // shape.stages)
    starts = [group * shape.micros // groups for group in range(groups + 1)]
    one = [Action("forward", chunk, micro) for begin, end in zip(starts, starts[1:]) for chunk in range(shape.chunks)
           for micro in range(begin, end)]
    return [one] * shape.stages


def main():
    parser = argparse.ArgumentParser(description="Plays the schedule on stdin, JSON of `minigpt schedule --json`.")
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--room", type=int, default=0, help="messages that a channel's buffer holds")
    parser.add_argument("--host", choices=HOSTS, default="free", help="what the host waits for")
    parser.add_argument("--order", choices=ORDERS, default="free", help="NCCL's order of launches")
    rules = Rules(**vars(parser.parse_args()))
    play = Play(*read(sys.stdin.read()), rules)
    if play.problem or play.hangs():
        sys.exit(play.problem or "\n".join(["deadlock:", *play.circle()]))
    print(f"no deadlock; {len(play.names)} events")


if __name__ == "__main__":
    main()
