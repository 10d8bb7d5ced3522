#!/usr/bin/env bash
# Makes a site of the documentation, build/docs/site/index.html: README.md, docs/, CONTRIBUTING.md and the public
# headers. Needs Debian's packages mkdocs and mkdocs-material; nothing is fetched from the network.
#
#   scripts/docs.sh [--version VERSION] [DIRECTORY]       default: build/docs
#
# With --version 0.2 the site is site/0.2, beside the versions that are there already, and site/latest is the one with
# the greatest number. Pages have a selector of versions; it needs a web server, such as python3 -m http.server.

set -euo pipefail
caller=$PWD
# shellcheck source=scripts/common.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

version=
case ${1:-} in
  -h | --help) usage scripts/docs.sh && exit ;;
  --version)
    version=${2:-}
    [[ $version =~ ^[0-9A-Za-z][0-9A-Za-z.-]*$ && $version != latest ]] ||
      die "docs: --version '$version' is no version" "Give a number or a name, such as 0.2 or dev."
    shift 2
    ;;
  -*) die "docs: there is no option $1" "scripts/docs.sh --help lists them." ;;
esac

have mkdocs || die "docs: there is no mkdocs" "Install it: apt-get install mkdocs mkdocs-material"
cd -- "$caller" # the argument is a path of the caller's
directory=${1:-$root/build/docs}
for name in pages site mkdocs.yml; do # of somebody else?
  [ $# = 0 ] || [ ! -e "$directory/$name" ] || [ -e "$directory/pages/api/index.md" ] ||
    die "docs: $directory/$name is there already" "Give a new directory."
done
old=$directory/site
[ -z "$version" ] || [ ! -e "$old/versions.json" ] || old+=/$version
rm -rf "$directory/pages" "$old"
mkdir -p "$directory/pages"
directory=$(cd -- "$directory" && pwd)
"$root/scripts/site/stage.py" "$root" "$directory/pages"
cp "$root/scripts/site/site.css" "$directory/pages"
number=$(sed -n 's/^project(triax VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
commit=$([ ! -e "$root/.git" ] || git -C "$root" describe --always --dirty '--exclude=*' --abbrev=12 || true)
{
  sed "s|\.\./\.\./build/docs/site|&${version:+/$version}|; s|\.\./\.\./build/docs|$directory|
    s|custom_dir: |&$root/scripts/site/|" "$root/scripts/site/mkdocs.yml"
  echo "copyright: triax $number${commit:+, commit $commit}" # at the foot of each page
  [ -z "$version" ] || echo "extra: {version: {provider: mike}}"
} >"$directory/mkdocs.yml"
mkdocs build --strict --config-file "$directory/mkdocs.yml" >"$directory/log" 2>&1 || # --quiet would keep warnings from --strict
  die "docs: mkdocs found mistakes" "$(grep -E '(WARNING|ERROR) +-|^Aborted|Error:' "$directory/log" || tail -n 20 "$directory/log")"
[ -z "$version" ] || "$root/scripts/site/versions.py" "$directory/site" "$version"
say "docs: $directory/site/${version:+$version/}index.html"
