#!/usr/bin/env bash
# Installs what triax needs and this machine lacks. Nothing missing: nothing is done.
#
#   scripts/setup.sh [--dev] [--check]
#
#   --dev     also what the checks need: clang-format 14, shellcheck
#   --check   say what is missing, install nothing; exit status 1 if anything is
#
# Knows Debian 12, Ubuntu 24.04 and what is built on them (through apt, as root or with sudo).

set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

dev=no check=no
for arg in "$@"; do
  case $arg in
    --dev) dev=yes ;;
    --check) check=yes ;;
    -h | --help) usage scripts/setup.sh && exit ;;
    *) die "setup: unknown option $arg" "Options: --dev, --check, --help" ;;
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
  "program mpicxx libopenmpi-dev"
  "program mpirun openmpi-bin"
  "header dnnl.hpp libdnnl-dev"
  "header CL/cl.h ocl-icd-opencl-dev" # Debian's oneDNN asks for it when it is configured
  "header fmt/format.h libfmt-dev"
  "header nlohmann/json.hpp nlohmann-json3-dev"
  "header CLI/CLI.hpp libcli11-dev"
  "header gtest/gtest.h libgtest-dev"
  "header benchmark/benchmark.h libbenchmark-dev"
  "header liburing.h liburing-dev"
)
[ $dev = no ] || needs+=("program clang-format-14 clang-format-14" "program shellcheck shellcheck")

present() {
  case $1 in
    program) have "$2" ;;
    header) have g++ && g++ -x c++ -E -include "$2" /dev/null >/dev/null 2>&1 ;;
  esac
}

missing=()
for need in "${needs[@]}"; do
  read -r kind what package <<<"$need"
  present "$kind" "$what" || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
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
{ "${as_root[@]}" apt-get -q update && "${as_root[@]}" "${install[@]}"; } >"$log" 2>&1 ||
  { tail -n 20 "$log" >&2; die "setup: apt-get could not install: ${missing[*]}"; }

for need in "${needs[@]}"; do
  read -r kind what package <<<"$need"
  present "$kind" "$what" || die "setup: $package is installed, yet $what is not found"
done
