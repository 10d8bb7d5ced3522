#!/usr/bin/env bash
# Collects, in one file, the packages that triax needs on a machine without a network.
#
#   scripts/offline_bundle.sh [FILE]     default: build/offline.tar
#
# That machine has CUDA's toolkit, a C++ compiler, CMake, ninja and Python with PyTorch; it lacks Open
# MPI, GoogleTest, Google Benchmark, fmt, nlohmann-json, toml++, PCRE2 and utf8proc. It has the same
# release of Debian or Ubuntu as this one. There nobody has to be root:
#
#   tar -xf offline.tar && eval "$(offline/unpack.sh PREFIX)"
#
# or scripts/gpu_check.sh --bundle offline.tar. Packages come through apt-get download; none is
# installed.

set -euo pipefail
caller=$PWD
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

# Other names of a package in other releases stand behind |.
packages=(
  jargon-text
  openmpi-bin openmpi-common "libopenmpi3|libopenmpi3t64" libopenmpi-dev
  "libhwloc15" "libevent-core-2.1-7|libevent-core-2.1-7t64"
  "libevent-pthreads-2.1-7|libevent-pthreads-2.1-7t64" "libpmix2|libpmix2t64" libmunge2 libnuma1 libudev1
  libgtest-dev libgmock-dev libbenchmark-dev "libbenchmark1debian|libbenchmark1.8.3"
  libfmt-dev "libfmt9|libfmt10" nlohmann-json3-dev libtomlplusplus-dev
  libpcre2-dev libpcre2-8-0 libutf8proc-dev libutf8proc2 libdlpack-dev
)

# known NAMES: the first of NAME|NAME.. that apt can download.
known() {
  local name
  for name in ${1//|/ }; do
    apt-cache show "$name" >/dev/null 2>&1 && echo "$name" && return
  done
  die "offline_bundle: apt knows no package ${1//|/, }" "Has this machine a network? apt-get update"
}

main() {
  case ${1:-} in
    -h | --help) usage scripts/offline_bundle.sh && exit ;;
    -*) die "offline_bundle: unknown option $1" "Options: --help" ;;
  esac
  [ $# -le 1 ] || die "offline_bundle: one FILE at most; got $*"
  have apt-get || die "offline_bundle: there is no apt-get here; expected Debian or Ubuntu"
  local file=${1:-$root/build/offline.tar} names=() all
  [[ $file == /* ]] || file=$caller/$file

  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  mkdir -p "$work/offline/packages" "$(dirname -- "$file")"
  cp scripts/gpu/offline_unpack.sh "$work/offline/unpack.sh"
  for all in "${packages[@]}"; do names+=("$(known "$all")"); done
  say "offline_bundle: ${#names[@]} packages"
  cd "$work/offline/packages"
  # Debian's own user for downloads may not write here: root downloads by itself.
  apt-get -q -o APT::Sandbox::User=root download "${names[@]}" >"$work/log" 2>&1 ||
    { tail -n 20 "$work/log" >&2; die "offline_bundle: apt-get could not download"; }
  tar -C "$work" -cf "$file" offline
  say "offline_bundle: $file, $(du -h "$file" | cut -f1)"
}

main "$@"
