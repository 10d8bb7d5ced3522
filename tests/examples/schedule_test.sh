#!/usr/bin/env bash
# The schedule program as a user runs it, and whether docs/drawings is what it draws.
#
#   schedule_test.sh SCHEDULE

set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
schedule=$1
made=$(mktemp -d)
trap 'rm -r "$made"' EXIT

failures=0
failed() {
  echo "FAILED: $1" >&2
  failures=$((failures + 1))
}

# prints NAME FLAGS...: standard output is what stands on standard input.
prints() {
  local name=$1
  shift
  diff -u - <("$schedule" "$@") >&2 || failed "$name prints something else"
}

# refuses CODE TEXT FLAGS...
refuses() {
  local code=$1 text=$2 said status=0
  shift 2
  said=$("$schedule" "$@" 2>&1) || status=$?
  [ $status = "$code" ] || failed "$*: exit status $status, expected $code"
  [[ $said == *"$text"* ]] || failed "$*: it said '$said', expected '$text'"
}

prints zb-h1 --schedule zb-h1 --stages 2 --micros 3 <<'END'
zb-h1: 2 stages, 3 micro-batches

          live  time 0
stage 0      2  F0 F1 .  I0 W0 F2 I1 W1 I2 W2
stage 1      2  .  F0 I0 F1 I1 W0 F2 I2 W1 W2

bubble 1 of 10 (10%)
F forward, I backward of the input, W backward of the weights, . idle
live: most activations held at once
END

prints interleaved --schedule interleaved --stages 2 --micros 2 --chunks 2 --columns 50 <<'END'
interleaved: 2 stages of 2 chunks, 2 micro-batches

          live  time 0
stage 0      4  F0a F1a F0b F1b .   .   B0b----
stage 1      3  .   F0a F1a F0b B0b---- F1b B1b-

          live  time 4
stage 0      4  .   B1b---- B0a---- B1a----
stage 1      3  --- B0a---- B1a---- .   .

bubble 1.5 of 7.5 (20%)
F forward, B backward, . idle
live: most activations, each of one chunk, held at once
END

prints 1f1b --schedule 1f1b --stages 1 --micros 1 --json <<'END'
{"name":"1f1b","stages":1,"chunks":1,"micros":1,"time":3.0,"bubble":0.0,"idle":[0.0],"peak_live":[1],"actions":[{"stage":0,"kind":"forward","chunk":0,"micro":0,"begin":0.0,"end":1.0},{"stage":0,"kind":"backward","chunk":0,"micro":0,"begin":1.0,"end":3.0}],"handovers":[]}
END

prints mesh --mesh 1x2x1 <<'END'
mesh: dp 1 x pp 2 x tp 1 = 2 ranks
  pp    {0, 1}
END

prints 'mesh as JSON' --mesh 1x2x1 --json <<'END'
{"mesh":{"dp":1,"pp":2,"tp":1,"ranks":[[0,0,0],[0,1,0]]}}
END

# Of 16384 f32 parameters: 4 + 4 + 8 bytes each on one rank.
prints zero --zero 4 --json <<'END'
{"zero":{"ranks":4,"micros":2,"parameters":16384,"stages":[{"weights":65536,"gradients":65536,"optimizer":131072,"sent":98304.0},{"weights":65536,"gradients":65536,"optimizer":32768,"sent":98304.0},{"weights":65536,"gradients":16384,"optimizer":32768,"sent":147456.0},{"weights":16384,"gradients":16384,"optimizer":32768,"sent":294912.0}]}}
END

prints tensor --tensor 2 --json <<'END'
{"tensor":{"ranks":2,"tensor":{"column":{"forward":[],"backward":["all_reduce"]},"row":{"forward":["all_reduce"],"backward":[]}},"sequence":{"column":{"forward":["all_gather"],"backward":["all_gather","reduce_scatter"]},"row":{"forward":["reduce_scatter"],"backward":["all_gather"]}}}}
END

refuses 64 "--schedule: \`1f2b\`; expected one of: gpipe, 1f1b" --schedule 1f2b
refuses 78 "schedule 1f1b: 2 chunks a stage; expected 1, or --schedule interleaved" --chunks 2
refuses 64 "--micros" --micros 0
refuses 64 "--stages" --stages many
refuses 64 "--zero" --zero 9
refuses 64 "--tensor" --tensor 1
refuses 78 "tp=3 does not divide 4 features" --tensor 3
refuses 64 "--speed" --speed 9
for mesh in 2x2 2x2x2x2 0x1x1 axbxc 99x99x99 2x2x2-; do
  refuses 78 "mesh \`$mesh\`; expected dp x pp x tp" --mesh $mesh
done

# The drawings: as in docs/drawings, well-formed, and one box for each action.
"$root/scripts/drawings.sh" "$schedule" "$made"
diff -rq "$root/docs/drawings" "$made" >&2 || failed "docs/drawings is old; the cure: scripts/drawings.sh"
python3 - "$made" <<'END' || failed "a drawing is not what its JSON says"
import pathlib, sys, xml.etree.ElementTree as xml
for file in pathlib.Path(sys.argv[1]).iterdir():
    classes = [shape.get("class") for shape in xml.parse(file).getroot().iter() if shape.get("rx") == "2"]
    if file.name == "zb-h1.svg":  # forward, backward of the input, of the weights, and the legend
        boxes = [classes.count(f"f-{color}") for color in ("blue", "green", "amber")]
        assert boxes == [4 * 8 + 1] * 3, (file, boxes)
END
"$root/scripts/drawings.sh" --help | grep -q 'scripts/drawings.sh \[SCHEDULE\]' || failed "drawings.sh --help"

# cannot_draw TEXT FLAGS...: of draw.py, which reads standard input.
cannot_draw() {
  local text=$1 said status=0
  shift
  said=$("$root/scripts/draw.py" "$@" 2>&1) || status=$?
  [ $status = 1 ] || failed "draw.py $*: exit status $status, expected 1"
  [[ $said == "draw.py: $text"* ]] || failed "draw.py $*: it said '$said', expected '$text'"
}
"$schedule" --json | cannot_draw "/no/such/directory/x.svg: No such file or directory" --svg /no/such/directory/x.svg
cannot_draw "/no/such/file: No such file or directory" /no/such/file
cannot_draw "KeyError('time'); expected what \`schedule --json\` prints" <<<'{}'
cannot_draw "JSONDecodeError" <<<'1f1b'
[ $failures = 0 ]
