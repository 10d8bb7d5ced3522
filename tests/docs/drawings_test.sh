#!/usr/bin/env bash
# Whether docs/drawings is what scripts/drawings.sh draws, and the figures in it.
#
#   drawings_test.sh MINIGPT FIGURES

set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
minigpt=$1 figures=$2
made=$(mktemp -d)
trap 'rm -r "$made"' EXIT

failures=0
failed() {
  echo "FAILED: $1" >&2
  failures=$((failures + 1))
}

# prints ARGUMENTS...: standard output is what stands on standard input.
prints() { diff -u - <("$figures" "$@") >&2 || failed "figures $* prints something else"; }

# refuses CODE TEXT ARGUMENTS...
refuses() {
  local code=$1 text=$2 said status=0
  shift 2
  said=$("$figures" "$@" 2>&1) || status=$?
  [ $status = "$code" ] || failed "figures $*: exit status $status, expected $code"
  [[ $said == *"$text"* ]] || failed "figures $*: it said '$said', expected '$text'"
}

prints mesh 1x2x1 <<'END'
{"mesh":{"dp":1,"pp":2,"tp":1,"ranks":[[0,0,0],[0,1,0]]}}
END

# Of 16384 f32 parameters: 4 + 4 + 8 bytes each on one rank.
prints zero 4 <<'END'
{"zero":{"ranks":4,"micros":2,"parameters":16384,"stages":[{"weights":65536,"gradients":65536,"optimizer":131072,"sent":98304.0},{"weights":65536,"gradients":65536,"optimizer":32768,"sent":98304.0},{"weights":65536,"gradients":16384,"optimizer":32768,"sent":147456.0},{"weights":16384,"gradients":16384,"optimizer":32768,"sent":294912.0}]}}
END

prints tensor 2 <<'END'
{"tensor":{"ranks":2,"tensor":{"column":{"forward":[],"backward":["all_reduce"]},"row":{"forward":["all_reduce"],"backward":[]}},"sequence":{"column":{"forward":["all_gather"],"backward":["all_gather","reduce_scatter"]},"row":{"forward":["reduce_scatter"],"backward":["all_gather"]}}}}
END

prints vocabulary 2 <<'END'
{"vocabulary":{"ranks":2,"tensor":{"embedding":{"forward":["all_reduce"],"backward":[]},"logits":{"forward":[],"backward":["all_reduce"]},"loss":{"forward":["all_gather"],"backward":[]}},"sequence":{"embedding":{"forward":["reduce_scatter"],"backward":["all_gather"]},"logits":{"forward":["all_gather"],"backward":["all_gather","reduce_scatter"]},"loss":{"forward":["all_gather"],"backward":[]}}}}
END

refuses 64 "expected mesh DPxPPxTP, zero RANKS, tensor RANKS or vocabulary RANKS"
refuses 64 "expected mesh DPxPPxTP, zero RANKS, tensor RANKS or vocabulary RANKS" speed 9
refuses 64 "\`9\` ranks; expected 1 to 8" zero 9
refuses 64 "\`2x\` ranks; expected 1 to 8" tensor 2x
refuses 78 "tp=3 does not divide 4 features" tensor 3
for mesh in 2x2 2x2x2x2 0x1x1 axbxc 99x99x99 2x2x2-; do
  refuses 78 "mesh \`$mesh\`; expected dp x pp x tp" mesh $mesh
done

# The drawings: as in docs/drawings, well-formed, and one box for each action.
"$root/scripts/drawings.sh" "$(dirname "$figures")" "$made"
diff -rq "$root/docs/drawings" "$made" >&2 || failed "docs/drawings is old; the cure: scripts/drawings.sh"
python3 - "$made" <<'END' || failed "a drawing is not what its JSON says"
import pathlib, sys, xml.etree.ElementTree as xml
for file in pathlib.Path(sys.argv[1]).iterdir():
    classes = [shape.get("class") for shape in xml.parse(file).getroot().iter() if shape.get("rx") == "2"]
    if file.name == "zb-h1.svg":  # forward, backward of the input, of the weights, and the legend
        boxes = [classes.count(f"f-{color}") for color in ("blue", "green", "amber")]
        assert boxes == [4 * 8 + 1] * 3, (file, boxes)
    if file.name == "any-mesh.svg":  # the curves of 300 steps lie on each other; 2 stages, 4 micro-batches
        lines = [[float(x) for x in shape.get("d")[1:].replace("L", " ").split()]
                 for shape in xml.parse(file).getroot().iter() if shape.get("stroke-linejoin")]
        one, mesh = [line for line in lines if len(line) == 2 * 300]
        assert max(abs(a - b) for a, b in zip(one, mesh)) < 0.1, file
        assert [classes.count(f"f-{color}") for color in ("blue", "green")] == [2 * 4 + 1] * 2, (file, classes)
END
"$root/scripts/drawings.sh" --help | grep -q 'scripts/drawings.sh \[PROGRAMS\]' || failed "drawings.sh --help"

# cannot_draw TEXT FLAGS...: of draw.py, which reads standard input.
cannot_draw() {
  local text=$1 said status=0
  shift
  said=$("$root/scripts/draw.py" "$@" 2>&1) || status=$?
  [ $status = 1 ] || failed "draw.py $*: exit status $status, expected 1"
  [[ $said == "draw.py: $text"* ]] || failed "draw.py $*: it said '$said', expected '$text'"
}
"$minigpt" schedule --json | cannot_draw "/no/such/directory/x.svg: No such file or directory" --svg /no/such/directory/x.svg
cannot_draw "/no/such/file: No such file or directory" /no/such/file
cannot_draw "KeyError('time'); expected the JSON of \`minigpt schedule\` or \`figures\`" <<<'{}'
cannot_draw "JSONDecodeError" <<<'1f1b'

# losses_refused TEXT ONE MESH PIPELINE: of draw_losses.py
losses_refused() {
  local text=$1 said
  shift
  said=$("$root/scripts/drawings/draw_losses.py" "$@" --mesh 2x2x2 --svg "$made/none.svg" 2>&1) && failed "draw_losses.py $* draws"
  [[ $said == "draw_losses.py: $text"* ]] || failed "draw_losses.py $*: it said '$said', expected '$text'"
}
one=$root/docs/pictures/any-mesh-1x1x1.jsonl
"$minigpt" schedule --pp 2 --micros 4 --json >"$made/pp2"
"$minigpt" schedule --pp 4 --micros 4 --json >"$made/pp4"
losses_refused "/no/such/file: No such file or directory" "$one" /no/such/file "$made/pp2"
losses_refused "ValueError('a pipeline of 4 stages for pp 2'); expected" "$one" "$one" "$made/pp4"
losses_refused "ValueError('zip() argument 2 is shorter than argument 1'); expected" "$one" <(head -n 200 "$one") "$made/pp2"
[ $failures = 0 ]
