#!/usr/bin/env bash
# One part of scripts/gpu_check.sh, which calls it under a time limit and says what the parts are.
#
#   scripts/gpu/gpu_part.sh NAME OUT BUILD PYTHON
#
# Exit status 200: this machine cannot show it, OUT/parts/NAME.why says why.
# shellcheck disable=SC2317 # parts are called by their names

set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../common.sh"
readonly part=$1 out=$2 build=$3 python=$4 text=$2/text.txt not_shown=200

# why_not WHY COMMAND: ends a part that cannot be shown here.
why_not() {
  printf '%s; %s' "$1" "$2" >"$out/parts/$part.why"
  echo "not shown: $1; $2"
  exit "$not_shown"
}

gpus() { nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true; }

needs_program() {
  [ -x "$build/bin/$1" ] ||
    why_not "there is no $build/bin/$1" "cmake --build $build --target $1 && scripts/gpu_check.sh --only $part"
}

needs_gpus() {
  local there
  there=$(gpus)
  ((there >= $1)) || why_not "GPUs needed: $1, there are $there" "scripts/gpu_check.sh --only $part"
}

needs_mpirun() { have mpirun || why_not "$1 there is no mpirun" "scripts/gpu_check.sh --only $part --bundle FILE"; }

has_pytorch() { "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; }

# finds_libraries: does minigpt find all it needs, cuBLASLt too, which it loads at its first product?
finds_libraries() {
  local name
  ! ldd "$build/bin/minigpt" 2>/dev/null | grep -q 'not found' || return 1
  name=$(grep -a -o -m1 '/[^[:cntrl:]]*libcublasLt\.so[.0-9]*' "$build/bin/minigpt" | head -n 1)
  [ ! -e "$name" ] || return 0
  name=$(grep -a -o -m1 'libcublasLt\.so\.[0-9]*' "$build/bin/minigpt" | head -n 1)
  [ -z "$name" ] || "$python" -c 'import ctypes, sys; ctypes.CDLL(sys.argv[1])' "$name" 2>/dev/null
}

# LD_LIBRARY_PATH for triax's programs and mpirun: what a bundle brings, and, where CUDA's libraries lie
# elsewhere than at their build, what Python has of them. Not for Python itself: PyTorch knows its own.
library_path() {
  local found path=${TRIAX_CHECK_LIBRARIES:-${LD_LIBRARY_PATH-}}
  LD_LIBRARY_PATH=$path finds_libraries && echo "$path" && return
  found=$("$python" -c 'if True:
    import glob, nvidia
    print(*(f for path in nvidia.__path__ for f in sorted(glob.glob(path + "/*/lib"))), sep=":")' 2>/dev/null) || true
  echo "$path${path:+${found:+:}}$found"
}

# with_libraries COMMAND [ARGUMENTS]
with_libraries() {
  local path
  path=$(library_path)
  env ${path:+"LD_LIBRARY_PATH=$path"} "$@"
}

# tests FILE [GTEST FLAGS]: all tests of the kernels that run on a GPU, or some. None at all is none passed.
tests() {
  local results=$1
  shift
  with_libraries env TRIAX_TEST_DEVICE=cuda:0 "$build/bin/test_on_gpu" --gtest_brief=1 \
    --gtest_output="json:$out/$results" "$@"
  ! grep -q '^ *"tests": 0,' "$out/$results" || die "$part: no test was run"
}

# meshes DEVICE COMM RANKS
meshes() {
  with_libraries "$python" tests/examples/meshes/gpu_meshes.py "$build/bin/minigpt" "$text" "$@"
}

# beside_pytorch RESULTS [OPTIONS]: bench/gpu/compare_gpu.py; where there is no PyTorch, of triax alone.
beside_pytorch() {
  local results=$1 alone=()
  shift
  needs_program minigpt
  has_pytorch || alone=(--without-pytorch)
  "$python" bench/gpu/compare_gpu.py --minigpt "$build/bin/minigpt" --data "$text" --python "$python" \
    --libraries "$(library_path)" --out "$out/$results" "${alone[@]}" "$@"
  [ ${#alone[@]} = 0 ] || why_not "triax was measured, but $python has no PyTorch that finds a GPU" \
    "scripts/gpu_check.sh --only $part --python FILE"
}

part_build() {
  local libraries=${TRIAX_CHECK_LIBRARIES-}
  [ -z "$libraries" ] || export LD_LIBRARY_PATH=$libraries # for mpicxx
  cmake --preset release -DTRIAX_CUDA=ON -DTRIAX_BENCH=ON
  cmake --build --preset release --target minigpt bench_cuda_kernels
  cmake --build --preset release --target test_on_gpu || echo "test_on_gpu was not built"
}

part_device() {
  nvidia-smi
  needs_program minigpt
  with_libraries "$python" bench/gpu/gpu_facts.py "$build/bin/minigpt" "$out/device.json"
  rm -rf "$out/first"
  with_libraries "$build/bin/minigpt" train --device cuda:0 --layers 2 --heads 2 --width 64 --context 32 --steps 3 \
    --warmup 0 --val-fraction 0 --data "$text" --out "$out/first"
}

part_kernels() {
  needs_program test_on_gpu
  tests tests.json
}

part_meshes() {
  local status=0
  needs_program minigpt
  meshes cuda:0 threads 4 || status=1
  [ $status = 1 ] || needs_mpirun "as threads they are equal, but over MPI"
  meshes cuda:0 mpi 4 || status=1
  return $status
}

part_speed() { beside_pytorch speed.json; }
part_large() { beside_pytorch large.json --cases 350M,774M,1.5B; }
part_batches() { beside_pytorch batches.json --cases b64-repeating,b64-fp16,b32-all,b4-all; }

part_ceilings() {
  needs_program bench_cuda_kernels
  with_libraries "$build/bin/bench_cuda_kernels" | tee "$out/ceilings.jsonl"
  "$python" bench/gpu/gpu_goals.py "$out/ceilings.jsonl"
}

part_loss() {
  needs_program minigpt
  has_pytorch || why_not "$python has no PyTorch that finds a GPU" "scripts/gpu_check.sh --only loss --python FILE"
  "$python" bench/gpu/compare_loss.py --minigpt "$build/bin/minigpt" --data "$text" --python "$python" \
    --libraries "$(library_path)" --out "$out/loss.json"
}

part_sanitize() {
  local sanitizer tool
  needs_program test_on_gpu
  sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer) ||
    why_not "there is no compute-sanitizer" "scripts/gpu_check.sh --only sanitize"
  # Of triax's own kernels: what the libraries' do among themselves looks like races.
  for tool in memcheck racecheck; do
    say "$tool"
    with_libraries env TRIAX_TEST_DEVICE=cuda:0 TRIAX_CUDNN=0 "$sanitizer" --tool "$tool" --error-exitcode 9 \
      "$build/bin/test_on_gpu" --gtest_brief=1 --gtest_filter='Op/*:-*matmul*'
  done
}

part_nccl() {
  needs_gpus 2
  needs_program minigpt
  needs_mpirun ""
  meshes cuda nccl $(($(gpus) >= 4 ? 4 : 2))
}

# Check by check (multi.json): what has passed is not run again.
part_multi() {
  needs_gpus 2
  needs_program minigpt
  needs_mpirun ""
  with_libraries "$python" tests/examples/meshes/multi_gpu.py "$build/bin/minigpt" "$text" "$out" "$(gpus)"
}

part_peers() {
  needs_gpus 2
  needs_program test_on_gpu
  tests peers.json --gtest_filter='*Peer*'
}

"part_$part"
