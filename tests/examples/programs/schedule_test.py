"""schedule_test.py MINIGPT MPIRUN: `schedule --search` finds schedules that an independent checker accepts and that train
as one rank does; their files are refused where they are damaged or do not fit; scripts/overlay.py shows what a run did over
its simulation. MPIRUN may be empty."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from minigpt_program import RANKS_SHARING_CORES, mpirun, words

minigpt, launcher = os.path.abspath(sys.argv[1]), sys.argv[2]
checker = pathlib.Path(__file__).resolve().parents[2] / "parallel/pipeline/check_found.py"
MODEL = words(layers=6, heads=2, width=16, context=8, micro_batch=2, warmup=0)
WHOLE_BACKWARDS = "--memory 1p --hold 1.25"
OFFLOADED = "--memory 1 --chunks 2 --times 1,1,1,0.1,0.4"
# Stages, micro-batches, the rest. All of them: TRIAX_SCHEDULES=13 schedule_test.py ...
FOUND = [(2, 4, "--memory 1.5p --hold 0.5"),
         (4, 8, "--memory 0.5p --chunks 2"),
         (4, 8, "--memory 1.25p --hold 1.25"),
         (4, 8, OFFLOADED),
         (3, 7, "--memory 4 --objective makespan --scale 1,1.2,1.5"),
         (4, 8, "--memory 1p --hold 1.25 --chunks 2"),  # in a V
         (4, 8, WHOLE_BACKWARDS),
         (4, 12, "--memory 1p --hold 0.5 --scale 1,1,1,1.2"),
         (4, 8, "--memory 1.25p --hold 0.5 --times 1,1,0.6,0.05"),
         (2, 2, "--memory 1p --hold 0"),
         (4, 8, "--memory 1p --hold 0.5 --chunks 2"),
         (3, 9, "--memory 1.5p --hold 0.4 --times 2,3,1,0.5"),
         (4, 6, "--memory 1.75p --hold 0.5 --times 29.7,29.4,19.9,0.5")]
failures = []


def expect(name, problem):
    print(f"{'FAILED' if problem else 'ok'}  {name}{': ' if problem else ''}{problem}", flush=True)
    if problem:
        failures.append(name)


def says(code, parts, *command, program=minigpt):
    done = subprocess.run([program, *map(str, command)] if command[0] != launcher else command, text=True,
                          capture_output=True, env=RANKS_SHARING_CORES, timeout=240)
    said = done.stdout + done.stderr
    missing = [part for part in parts if part not in " ".join(said.split())]
    if done.returncode != code or missing:
        return f"exit code {done.returncode}, expected {code}; no {missing} in {said}"
    return ""


def search(path, stages, micros, more):
    if "--chunks" not in more:
        more += " --chunks 1"
    return says(0, ["found", "bound"], "schedule", "--search", "--pp", stages, "--micros", micros, *more.split(),
                "--tries", 3000, "--save", path)


def found_ones_train(folder):
    for number, (stages, micros, more) in enumerate(FOUND[:int(os.environ.get("TRIAX_SCHEDULES", 7))]):
        path = folder / f"found{number}.json"
        expect(f"search: {more}", search(path, stages, micros, more))
        done = subprocess.run([sys.executable, checker, path], capture_output=True, text=True)
        expect("the checker accepts it", "" if done.returncode == 0 else done.stdout + done.stderr)
        expect("it trains as one rank does", says(0, ["EQUAL"], "parity", "--mesh", f"1x{stages}x1", "--schedule", path,
                                                  "--global-batch", 2 * micros, *MODEL))
        if more == OFFLOADED:
            expect("some of its activations go to host memory", "" if " O1." in path.read_text() else path.read_text())
            for flags in ("--recompute block", "--recompute selective", "--precision bf16 --sequence-parallel"):
                expect(f"it trains with tensor parallelism and {flags}", says(
                    0, ["EQUAL"], "parity", "--mesh", f"1x{stages}x2", "--schedule", path, "--global-batch", 2 * micros,
                    *flags.split(), *MODEL))
            expect("and with two replicas and ZeRO-2", says(
                0, ["EQUAL"], "parity", "--mesh", f"2x{stages}x1", "--zero", 2, "--schedule", path, "--global-batch",
                4 * micros, *MODEL))
        if more == WHOLE_BACKWARDS:
            expect("some of its backwards are whole, some in halves",
                   "" if " A0." in path.read_text() and " W0." in path.read_text() else path.read_text())
            expect("so it trains with two replicas and ZeRO-1", says(
                0, ["EQUAL"], "parity", "--mesh", f"2x{stages}x1", "--zero", 1, "--schedule", path, "--global-batch",
                4 * micros, *MODEL))


def what_the_checker_is_for(folder):
    """It has to find what is wrong."""
    good = json.loads((folder / "found0.json").read_text())
    list_of = good["lists"][0].split()
    for name, change, says_what in (
            ("incomplete", lambda l: l[:-1], "is not complete"),
            ("out of order", lambda l: [l[-1], *l[:-1]], "before its B"),
            ("too much memory", lambda l: sorted(l, key=lambda a: "FBW".index(a[0])),
             "above its cap")):
        (folder / "bad.json").write_text(json.dumps(dict(good, lists=[" ".join(change(list_of)), *good["lists"][1:]])))
        done = subprocess.run([sys.executable, checker, folder / "bad.json"], capture_output=True, text=True)
        right = done.returncode == 1 and says_what in done.stdout
        expect(f"the checker refuses a list that is {name}", "" if right else done.stdout + done.stderr)


def files_that_do_not_fit(folder):
    path = folder / "found0.json"
    train = ["train", "--comm", "threads", "--ranks", 2, "--pp", 2, "--steps", 1, *MODEL]
    expect("another mesh", says(78, ["found for 2 stages, 1 chunk, 4 micro-batches; this run has 3, 1, 4", "--pp 2"],
                                "parity", "--mesh", "1x3x1", "--schedule", path, "--global-batch", 8, *MODEL))
    expect("another batch", says(78, ["this run has 2, 1, 3", "schedule --search --pp 2 --micros 3"], *train,
                                 "--schedule", path, "--global-batch", 6))
    expect("no file", says(66, ["no.json"], *train, "--schedule", folder / "no.json"))
    (folder / "half.json").write_text(path.read_text()[:200])
    expect("half a file", says(65, ["half.json, not JSON"], *train, "--schedule", folder / "half.json"))
    expect("plan knows it, and its stages", says(0, ["1 x 2 x 2"], "plan", "--ranks", 4, "--schedule", path,
                                                 "--global-batch", 8, "--vocab", 96, *MODEL[:-2]))
    expect("shown as it is", says(0, ["found0.json: 2 stages, 4 micro-batches", "bound"], "schedule", "--schedule", path))
    expect("shown for another shape", says(78, ["this run has 3, 1, 4", "`schedule`: --micros"], "schedule", "--schedule", path, "--pp", 3))
    expect("a batch that does not fit is told of its stages",
           says(78, ["this run has 2, 1, 2"], "plan", "--ranks", 2, "--schedule", path, "--global-batch", 4, "--vocab", 96,
                *MODEL[:-2]))
    expect("a pipe has all columns",
           says(0, ["dp x pp x tp ZeRO schedule micro recompute sp a step MFU bubble memory free why", "zb-2p"], "plan",
                "--pp", 2, "--ranks", 2, "--recompute", "off", *MODEL[:-2]))
    expect("nowhere to save", says(73, ["there is no directory /no/such"], "schedule", "--search", "--pp", 2, "--save",
                                   "/no/such/x.json"))
    (folder / "times.json").write_text('{"times": [[1, 1, 1, 0], [2, 1, 1, 0]]}')
    expect("only a schedule is replaced",
           says(73, ["exists and is no schedule"], "schedule", "--search", "--pp", 2, "--micros", 2, "--save",
                folder / "times.json", "--times", folder / "times.json"))
    expect("schedules with the same lists", says(0, ["zb-2p", "zb-h1"], "schedule", "--search", "--tries", 1, "--pp", 2,
                                                 "--micros", 2))
    shown = f"--schedule {path} "
    for flags, what in ((shown + "--times 2,2,2,2", "times with schedule="), (shown + "--scale 1,1", "scale with"),
                        (shown + "--search", "search with"), ("--memory 3p", "memory without search"),
                        ("--hold 0.5", "hold without search"), ("--search --save x", "Expected --search --save FILE.json"),
                        ("--save x.json", "without search"),
                        ("--search --schedule zb-v", "search with schedule=zb-v"),
                        ("--search --memory 1q", "memory=1q; expected"), ("--search --times 1,2", "times=1,2; expected"),
                        ("--search --chunks 3", "expected one chunk, or two in a V"), ("--scale 1,x", "scale=1,x; expected"),
                        ("--pp 2 --scale 1,0", "scale=1,0; expected numbers above 0"),
                        ("--search --memory 0.1p", "memory for 0.4 activations")):
        expect(flags, says(78, [what], "schedule", *flags.split()))


def bounds_are_of_as_many_chunks(folder):
    """zb-v costs less here than any schedule of one chunk: no such bound makes it optimal."""
    search = "--search --chunks 1 --pp 3 --micros 5 --scale 1,2,1.5 --memory 7 --objective makespan --tries 100"
    expect("a bound of one chunk", says(0, ["zb-v 30.5", "31 3.23% no schedule of 1 chunk a stage costs less"],
                                        "schedule", *search.split()))
    shown = subprocess.run([minigpt, "schedule", *search.split()], capture_output=True, text=True).stdout
    expect("says nothing about two", "" if "zb-2p is optimal" in shown and "zb-v is optimal" not in shown else shown)
    search = "--search --chunks 2 --pp 2 --micros 2 --times 1,10,1,0 --scale 1,1.5 --memory 2 --tries 300"
    shown = subprocess.run([minigpt, "schedule", *search.split()], capture_output=True, text=True).stdout
    expect("a bound of a V", "" if "no schedule of 2 chunks a stage in a V costs less" in " ".join(shown.split()) and
           "found: optimal" in shown and "interleaved is optimal" not in shown else shown)


def never_worse_than_a_named_one():
    """Without --chunks, the best of one chunk, two in a V, and every named schedule in that memory, whatever its chunks."""
    for flags in ("--memory 4", "--memory 1p --times 1,1,0.5,0.1", "--memory 1.5p --scale 1,1,1,1.3", "--memory 9 --hold 0.5"):
        done = subprocess.run([minigpt, "schedule", "--search", "--json", "--pp", "4", "--micros", "6", "--tries", "20",
                               *flags.split()], capture_output=True, text=True)
        found = json.loads(done.stdout)
        better = [row["name"] for row in found["rows"] if row["cost"] < found["cost"] * (1 - 1e-9) and
                  all(peak <= cap + 1e-9 for peak, cap in zip(row["peak"], found["cap"]))]
        expect(f"no named schedule is better: {flags}", f"{better}" if better else "")


def drawings_are_small():
    """A cell is not as narrow as the shortest action, if that is next to nothing."""
    shown = subprocess.run([minigpt, "schedule", "--schedule", "zb-h1", "--times", "1,1,1e-9,0"], capture_output=True, text=True)
    expect("a short backward", "" if 1000 < len(shown.stdout) < 2_000_000 and "not drawn: actions much shorter" in shown.stdout
           else f"{len(shown.stdout)} letters {shown.stderr}")


def parity_refuses_at_once():
    """What does not fit the mesh, before the reference is trained, which would take hours."""
    model = words(layers=4, width=16, heads=2, context=8, steps=10000, global_batch=48)
    for mesh, flags, what in (("1x4x1", "--schedule zb-v", "8 virtual stages"), ("1x4x1", "--placement 1,1,1", "4 counts"),
                              ("1x8x1", "", "8 virtual stages")):
        expect(f"parity {mesh} {flags}", says(78, [what], "parity", "--mesh", mesh, *flags.split(), *model))


def resumed_runs(folder):
    """A file of the same path may hold other lists later."""
    path, out = folder / "lists.json", folder / "run"
    expect("search", search(path, 2, 4, "--memory 1p"))
    train = ["train", "--comm", "threads", "--ranks", 2, "--pp", 2, "--schedule", path, "--global-batch", 8, "--out", out,
             *MODEL]
    expect("trains", says(0, ["finished after step 1"], *train, "--steps", 1))
    expect("resumes", says(0, ["resumed after step 1", "finished after step 2"], *train, "--steps", 2, "--resume", "auto"))
    expect("search", search(path, 2, 4, "--memory 2p --times 2,1,1,0"))
    expect("says that the lists changed", says(0, ["lists of the schedule were crc32c"], *train, "--steps", 3, "--resume",
                                               "auto"))
    if not launcher:
        return
    for rank, memory in enumerate(("1p", "2p --times 2,1,1,0")):
        (folder / str(rank)).mkdir()
        expect("search", search(folder / str(rank) / "s.json", 2, 4, f"--memory {memory}"))
    run = [minigpt, "train", "--pp", "2", "--schedule", "s.json", "--global-batch", "8", "--steps", "1", "--out",
           str(folder / "apart"), *MODEL]
    start = [*mpirun(launcher, 1), "-wdir", str(folder / "0"), *run, ":", "-np", "1", "-wdir", str(folder / "1"), *run]
    done = subprocess.run(start, capture_output=True, text=True, env=RANKS_SHARING_CORES, timeout=120)
    right = "ranks disagree about the run" in done.stderr and "lists of the schedule = crc32c" in done.stderr
    expect("ranks whose files differ", "" if right and done.returncode != 0 else done.stdout + done.stderr)


def overlays(folder):
    """Of a schedule from a file, which the trace need not name, and of one in a V."""
    scripts = pathlib.Path(__file__).resolve().parents[3] / "scripts"
    for schedule, micros in ((folder / "found0.json", 4), ("zb-v", 3)):
        out = folder / pathlib.Path(schedule).stem
        expect(f"traces {out.name}", says(0, ["finished"], "train", "--comm", "threads", "--ranks", 2, "--pp", 2,
                                          "--schedule", schedule, "--global-batch", 2 * micros, "--steps", 2, "--profile", 2,
                                          "--out", out, *MODEL))
        expect("overlay", says(0, ["step 2:", f"2 stages, {micros} micro-batches", "pipeline, simulated", "waits most:"],
                               out, program=scripts / "overlay.py"))
        shown = subprocess.run([scripts / "overlay.py", out, "--json"], capture_output=True, text=True).stdout
        drawn = subprocess.run([sys.executable, scripts / "draw.py"], input=shown, capture_output=True, text=True)
        both, chunks = json.loads(shown), 2 if schedule == "zb-v" else 1
        boxes = drawn.stdout.count('rx="2"') - 4  # the legend's
        actions = 3 * 2 * chunks * micros
        right = boxes == 2 * actions and all(len(each["actions"]) == actions for each in (both["measured"], both["simulated"]))
        expect("and draws each action twice", "" if right else f"{boxes} boxes for {actions} actions; {drawn.stderr}")
    expect("a run without a trace", says(66, ["there is no", "trace.json", "--profile"], folder / "run",
                                         program=scripts / "overlay.py"))
    expect("the old flag", says(64, ["unknown flag --overlay; it is `triax-overlay RUN` now"], "schedule", "--overlay", folder))


with tempfile.TemporaryDirectory() as name:
    place = pathlib.Path(name)
    found_ones_train(place)
    what_the_checker_is_for(place)
    files_that_do_not_fit(place)
    bounds_are_of_as_many_chunks(place)
    never_worse_than_a_named_one()
    drawings_are_small()
    parity_refuses_at_once()
    resumed_runs(place)
    overlays(place)
sys.exit(len(failures) > 0)
