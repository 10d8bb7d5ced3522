#!/usr/bin/env bash
# Makes a site of the documentation, build/docs/site/index.html: README.md, docs/, CONTRIBUTING.md and the public
# headers. Needs Debian's packages mkdocs and mkdocs-material; nothing is fetched from the network.
#
#   scripts/docs.sh [DIRECTORY]       default: build/docs

set -euo pipefail
caller=$PWD
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

case ${1:-} in -h | --help) usage scripts/docs.sh && exit ;; esac

have mkdocs || die "docs: there is no mkdocs" "Install it: apt-get install mkdocs mkdocs-material"
cd -- "$caller" # the argument is a path of the caller's
directory=${1:-$root/build/docs}
for name in pages site mkdocs.yml; do # of somebody else?
  [ $# = 0 ] || [ ! -e "$directory/$name" ] || [ -e "$directory/pages/api/index.md" ] ||
    die "docs: $directory/$name is there already" "Give a new directory."
done
rm -rf "$directory/pages" "$directory/site"
mkdir -p "$directory/pages"
directory=$(cd -- "$directory" && pwd)
"$root/scripts/site/stage.py" "$root" "$directory/pages"
cp "$root/scripts/site/site.css" "$directory/pages"
sed "s|\.\./\.\./build/docs|$directory|" "$root/scripts/site/mkdocs.yml" >"$directory/mkdocs.yml"
mkdocs --quiet build --strict --config-file "$directory/mkdocs.yml"
say "docs: $directory/site/index.html"
