#!/usr/bin/env bash
# Installs what triax needs and this machine lacks. Nothing missing: nothing is done.
#
#   scripts/setup.sh [--dev] [--cuda] [--check]
#
#   --dev     also what the checks need: clang-format 14, shellcheck and, where nvcc is, NVIDIA's
#             disassembler, from Python's packages into build/tools
#   --cuda    also what building for NVIDIA GPUs needs: CUDA's compiler and runtime, cuBLAS, cuDNN 9,
#             NCCL (docs/gpu.md), from NVIDIA's apt repository, which has to be configured
#   --check   say what is missing, install nothing; exit status 1 if anything is
#
# A text to train on, the package jargon-text, is installed if that can be done without a question.
# Knows Debian 12, Ubuntu 24.04 and what is built on them (through apt, as root or with sudo).

set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

dev=no cuda=no check=no
for arg in "$@"; do
  case $arg in
    --dev) dev=yes ;;
    --cuda) cuda=yes ;;
    --check) check=yes ;;
    -h | --help) usage scripts/setup.sh && exit ;;
    *) die "setup: unknown option $arg" "Options: --dev, --cuda, --check, --help" ;;
  esac
done

# What is needed: a program or a C++ header, and the package that brings it.
needs=(
  "program g++ g++"
  "program cmake cmake"
  "program ninja ninja-build"
  "program git git"
  "program python3 python3"
  "program ccache ccache"
  "mpi mpi.h libopenmpi-dev" # openmpi-bin alone has mpicxx too
  "program mpirun openmpi-bin"
  "header fmt/format.h libfmt-dev"
  "header nlohmann/json.hpp nlohmann-json3-dev"
  "header toml++/toml.h libtomlplusplus-dev"
  "header pcre2posix.h libpcre2-dev" # pcre2.h alone is an error
  "header utf8proc.h libutf8proc-dev"
  "header gtest/gtest.h libgtest-dev"
  "header benchmark/benchmark.h libbenchmark-dev"
  "header dlpack/dlpack.h libdlpack-dev"
)
[ $dev = no ] || needs+=("program clang-format-14 clang-format-14" "program shellcheck shellcheck")

# Where CUDA may lie: a toolkit, and the packages of python's pip.
toolkit=${CUDA_HOME:-/usr/local/cuda} release=13-0 includes=()
if [ $cuda = yes ]; then
  nvcc=$(command -v nvcc || echo "$toolkit/bin/nvcc")
  if [ -x "$nvcc" ]; then # what is added has to fit
    release=$("$nvcc" --version | sed -n 's/.*release \([0-9]*\)\.\([0-9]*\).*/\1-\2/p')
  fi
  needs+=(
    "nvcc nvcc cuda-nvcc-$release"
    "cuda cuda_runtime.h cuda-cudart-dev-$release"
    "cuda cublasLt.h libcublas-dev-$release"
    "cuda cudnn.h libcudnn9-dev-cuda-${release%-*}"
    "cuda nvrtc.h cuda-nvrtc-dev-$release" # cuDNN compiles with it
    "cuda nccl.h libnccl-dev"
  )
  for folder in "$toolkit" $(python3 -c 'if True:
      import glob, nvidia
      print(*(f for path in nvidia.__path__ for f in glob.glob(path + "/*")))' 2>/dev/null); do
    includes+=("-I$folder/include")
  done
fi

present() {
  case $1 in
    nvcc) have nvcc || [ -x "$toolkit/bin/nvcc" ] ;;
    cuda) have g++ && g++ -x c++ -E -include "$2" "${includes[@]}" /dev/null >/dev/null 2>&1 ;;
    mpi) have mpicxx && mpicxx -x c++ -E -include "$2" /dev/null >/dev/null 2>&1 ;;
    program) have "$2" ;;
    header) have g++ && g++ -x c++ -E -include "$2" /dev/null >/dev/null 2>&1 ;;
  esac
}

missing=()
for need in "${needs[@]}"; do
  read -r kind what package <<<"$need"
  present "$kind" "$what" || missing+=("$package")
done

# The text is no reason to stop: without it one trains on this repository's sources.
docs=${DOCS:-/usr/share/doc}
add_text() {
  [ ! -e "$docs/jargon-text/jargon.txt.gz" ] || return 0
  [ $check = no ] && have apt-get && apt-cache show jargon-text >/dev/null 2>&1 || return 0
  local install=(env DEBIAN_FRONTEND=noninteractive apt-get -q -y --reinstall install jargon-text
    # Containers are told to leave documentation out, which is what this package is.
    -o "Dpkg::Options::=--path-include=/usr/share/doc/jargon-text/*")
  [ "$(id -u)" -eq 0 ] || install=(sudo -n "${install[@]}")
  say "setup: installing jargon-text, a text to train on"
  "${install[@]}" >/dev/null 2>&1 || say "setup: jargon-text could not be installed; going on without it"
}

# Neither is the disassembler: without it tests/sass/check.py is skipped. Not every toolkit has it.
add_disassembler() {
  [ $dev = yes ] && [ $check = no ] && { have nvcc || [ -x "$toolkit/bin/nvcc" ]; } || return 0
  ! python3 tests/sass/check.py >/dev/null 2>&1 || return 0
  say "setup: installing NVIDIA's disassembler into build/tools"
  python3 -m pip -q install --no-deps --upgrade --target build/tools "nvidia-cuda-cuobjdump==13.*" \
    "nvidia-cuda-nvdisasm==13.*" >/dev/null 2>&1 ||
    say "setup: the disassembler could not be installed; going on without it"
}

if [ ${#missing[@]} -eq 0 ]; then
  add_text
  add_disassembler
  say "setup: everything is there"
  exit
fi
[ $check = no ] || die "setup: missing: ${missing[*]}"

os_release=${OS_RELEASE:-/etc/os-release} id=unknown like=
if [ -r "$os_release" ]; then
  # shellcheck source=/dev/null
  read -r id like < <(. "$os_release" && echo "${ID:-unknown} ${ID_LIKE:-}")
fi
case " $id $like " in
  *" debian "* | *" ubuntu "*) ;;
  *) die "setup: this is $id; only Debian, Ubuntu and their relatives are known" \
    "Please install by hand what these packages hold, then run this again:" "${missing[*]}" ;;
esac

install=(apt-get -q -y --no-install-recommends install "${missing[@]}")
as_root=(env DEBIAN_FRONTEND=noninteractive)
if [ "$(id -u)" -ne 0 ]; then
  have sudo || die "setup: not root, and there is no sudo; as root run:" \
    "apt-get update && ${install[*]}"
  as_root=(sudo "${as_root[@]}")
fi

say "setup: installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
quietly() {
  "${as_root[@]}" "$@" >"$log" 2>&1 ||
    { tail -n 20 "$log" >&2; die "setup: apt-get could not install: ${missing[*]}"; }
}
quietly apt-get -q update
for need in "${needs[@]}"; do
  read -r kind what package <<<"$need"
  case $kind in
    nvcc | cuda) ;;
    *) continue ;;
  esac
  present "$kind" "$what" || apt-cache show "$package" >/dev/null 2>&1 ||
    die "setup: apt knows no $package; NVIDIA's repository is not configured, or has another release" \
      "How to: https://docs.nvidia.com/cuda/cuda-installation-guide-linux (\"Network Repo\")" \
      "Nothing was installed. Missing: ${missing[*]}"
done
quietly "${install[@]}"

for need in "${needs[@]}"; do
  read -r kind what package <<<"$need"
  present "$kind" "$what" || die "setup: $package is installed, yet $what is not found"
done
add_text
add_disassembler
