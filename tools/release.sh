#!/bin/sh
# tools/release.sh: build the wheel and the source archive of a release into dist/, and try the wheel in an empty
# environment without a network. Changelog, citation and package must agree on the version.
set -eu
cd "$(dirname "$0")/.."
. tools/lib.sh

python=$PWD/$venv/bin/python
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' bftrain/version.py)
[ -z "$(git status --porcelain)" ] || fail 'there are uncommitted changes: commit or stash them, then run make release'
grep -q "^## \[$version\]" CHANGELOG.md ||
    fail "CHANGELOG.md has no section [$version]: add it, or correct bftrain/version.py"
grep -q "^version: $version$" CITATION.cff || fail "CITATION.cff has another version: write version: $version"

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT INT TERM
git archive HEAD | tar -x -C "$place"
mkdir -p dist
rm -f dist/bftrain-"$version"*
say "building bftrain $version"
"$python" -m build --no-isolation --sdist --outdir dist "$place" >"$place/log" 2>&1 || { cat "$place/log"; exit 1; }
tar -xf dist/bftrain-"$version".tar.gz -C "$place"
"$python" -m build --no-isolation --wheel --outdir dist "$place/bftrain-$version" >"$place/log" 2>&1 ||
    { cat "$place/log"; exit 1; }
wheel=$(ls dist/bftrain-"$version"-*.whl)
case $wheel in
*-py3-none-manylinux_*) ;;
*) fail "$wheel has no compiled code for Linux: install a C compiler, then run make release" ;;
esac

say "trying $wheel in an empty environment, without a network"
"$python" -m pip wheel --quiet --wheel-dir "$place/wheels" "$wheel"
"$python" -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --no-index --find-links "$place/wheels" bftrain
cd "$place"
offline=$(unshare --map-root-user --net true 2>/dev/null && echo 'unshare --map-root-user --net' || true)
[ -n "$offline" ] || say 'networks cannot be hidden here: the demo runs with one'
[ "$(venv/bin/bftrain --version)" = "bftrain $version" ] || fail "the wheel calls itself $(venv/bin/bftrain --version)"
$offline venv/bin/bftrain demo --quick >/dev/null
cd - >/dev/null
say "$wheel" dist/bftrain-"$version".tar.gz
