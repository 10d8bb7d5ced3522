# shellcheck shell=bash
# Sourced by the other scripts: where things are, how to say what happens.

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
cd -- "$root" || exit

# The comment at the top of the script that was called is its help.
usage() {
  sed -n '2,/^$/ { s/^# \{0,1\}//; p; }' "${root}/$1"
}

say() { printf '==> %s\n' "$*"; }

die() {
  printf 'error: %s\n' "$1" >&2
  shift
  [ $# -eq 0 ] || printf '  %s\n' "$@" >&2
  exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

cores() { nproc 2>/dev/null || echo 2; }

# span SECONDS: for people to read.
span() { if [ "$1" -lt 60 ]; then echo "$1 s"; else echo "$(($1 / 60)) min $(($1 % 60)) s"; fi; }

# A line where the moving line is, if there is one.
overwrite() { if [ -t 1 ]; then printf '\r\033[K%s%s' "$1" "${2-$'\n'}"; else printf '%s\n' "$1"; fi; }

# progress WHAT: ninja's or ctest's lines, with those of what went well replaced by how far it is:
# one moving line on a terminal, else a line every `progress_every` seconds, also while nothing ends.
progress_every=15
progress() {
  local what=$1 line='' piece done=0 total=0 next=$progress_every start=$SECONDS now
  while true; do
    if IFS= read -r -t 1 piece; then
      line+=$piece
      # [12/289] Building ..., and  12/900 Test  #4: name ...   Passed    0.02 sec
      if [[ $line =~ ^(\[| *)([0-9]+)/([0-9]+)(\]| Test +#) ]]; then
        done=${BASH_REMATCH[2]} total=${BASH_REMATCH[3]}
        [[ $line == \[* || $line == *' Passed '* ]] || overwrite "$line"
      elif [[ ! $line =~ ^\ +Start\ +[0-9]+: && $line != "ninja: no work to do." ]]; then
        overwrite "$line"
      fi
      line=
    elif [ $? -gt 128 ]; then
      line+=$piece # a second has passed
    else
      break
    fi
    now=$((SECONDS - start))
    if [ "$done" -gt 0 ] && { [ -t 1 ] || [ $now -ge $next ]; }; then
      overwrite "    $what: $((100 * done / total))% ($done of $total), \
about $(span $((now * (total - done) / done))) left" ""
      next=$((now + progress_every))
    elif [ $now -ge $next ]; then
      overwrite "    $what: begun $(span $now) ago" ""
      next=$((now + progress_every))
    fi
  done
  [ -z "$line" ] || overwrite "$line"
  [ "$done" = 0 ] || overwrite "    $what: $done of $total in $(span $((SECONDS - start)))"
}

gpu_answers() {
  nvidia-smi -L 2>/dev/null | grep -q '^GPU' || compgen -G '/dev/nvidia[0-9]*' >/dev/null
}

# cuda_choice DIRECTORY: the option of CMake for kernels for GPUs, which take most of a build. Without
# a GPU only a build directory that has them keeps them.
cuda_choice() {
  local nvcc=${CUDA_HOME:-/usr/local/cuda}/bin/nvcc
  if [ -n "${TRIAX_CUDA:-}" ]; then
    echo "-DTRIAX_CUDA=$TRIAX_CUDA"
  elif gpu_answers; then
    echo -DTRIAX_CUDA=AUTO
  elif ! grep -qs '^TRIAX_CUDA:[A-Z]*=\(AUTO\|ON\)' "$1/CMakeCache.txt"; then
    echo -DTRIAX_CUDA=OFF
    { have nvcc || [ -x "$nvcc" ]; } &&
      say "CUDA: no GPU answers, so its kernels are not compiled; TRIAX_CUDA=ON in the environment does" >&2
  fi
  return 0
}

# configure PRESET [OPTIONS OF cmake]: silent unless something is wrong.
configure() {
  local preset=$1 directory=build/$1 log=build/$1/configure.log choice=
  shift
  mkdir -p "$directory"
  say "configure: $directory"
  case $preset in
    quick | clang | fuzz) ;; # have made it
    *) choice=$(cuda_choice "$directory") ;;
  esac
  cmake --preset "$preset" ${choice:+"$choice"} "$@" >"$log" 2>&1 ||
    { cat "$log" >&2; die "cmake could not configure $directory"; }
}

# configure_first: build/release, if it is new for this machine alone, which takes half of the time;
# scripts/test.sh builds the rest.
configure_first() {
  local levels=()
  [ -e build/release/CMakeCache.txt ] || levels=(-DTRIAX_CPU_LEVELS=native)
  configure release "${levels[@]}"
}

# compile PRESET [OPTIONS OF cmake --build]
compile() {
  local preset=$1
  shift
  say "build: build/$preset"
  NINJA_STATUS='[%f/%t] ' cmake --build --preset "$preset" "$@" | progress build
}

# build PRESET [OPTIONS OF cmake --build]: configures first.
build() { configure "$1" && compile "$@"; }

# run_tests PRESET [CTEST OPTIONS]: prints what failed, and the sums.
run_tests() {
  local preset=$1
  shift
  say "test: $preset"
  ctest --preset "$preset" -j "$(cores)" "$@" | progress test
}
