#!/bin/sh
# tools/venv.sh LAYER: make sure that the virtual environment $VENV is whole and holds bftrain and LAYER, which is
# `base` or extras of pyproject.toml joined by commas. Says nothing and calls no pip when nothing is to do.
set -eu
cd "$(dirname "$0")/.."
. tools/lib.sh

layer=$1
log=$state/install.log
unfinished=$state/unfinished # exists while anything is being installed; holds the packages of before

# Two makes at once: the second waits. Where a directory cannot be locked (NFS) they are on their own.
exec 9<tools
flock 9 2>/dev/null || true

identity() { "$1" -c 'import sys; print(sys.version, sys.base_prefix)' 2>/dev/null; }

# Every program and package in the environment, without versions: one may be brought up to date by hand.
contents() {
    (cd "$venv" && LC_ALL=C ls bin lib/python3*/site-packages) | grep -v -e '\.dist-info$' -e '^__pycache__$' | LC_ALL=C sort
}

# The packages in the environment, by name.
packages() {
    ls "$venv"/lib/python3*/site-packages 2>/dev/null | sed -n 's/-[^-]*\.dist-info$//p' | LC_ALL=C sort
}

# The packages that make did not install: they are somebody's work, and make deletes none of them.
others() {
    ours=$state/packages
    [ -e "$ours" ] || ours=/dev/null
    if [ -e "$unfinished" ]; then cat "$unfinished"; else packages; fi |
        grep -v -x -e pip -e setuptools -e wheel | LC_ALL=C comm -23 - "$ours"
}

# Why the environment in $venv cannot be used as it is; nothing if it can.
why_not() {
    if [ -e "$unfinished" ]; then
        say 'an earlier installation did not end'
    elif ! identity "$venv/bin/python" >/dev/null; then
        say 'its Python does not run'
    elif [ -n "${PYTHON:-}" ] && [ "$(identity "$venv/bin/python")" != "$(identity "$PYTHON")" ]; then
        say "it was made with another Python than $PYTHON"
    elif [ -e "$state/place" ] && [ "$(cat "$state/place")" != "$(cd "$venv" && pwd -P)" ]; then
        say 'it was moved here from another place'
    elif ! fits "$venv/bin/python"; then
        say 'its Python is of a version that bftrain does not support'
    elif ! ls "$venv"/lib/python3*/site-packages/pip/__main__.py >/dev/null 2>&1; then
        say 'it has no pip'
    elif [ -e "$state/contents" ] && [ -n "$(contents | LC_ALL=C comm -13 - "$state/contents")" ]; then
        say 'parts of it were removed'
    fi
}

# Say in words why the last step failed, as far as its log tells.
explain() {
    free=$(free_mb "$venv") free_tmp=$(free_mb "${TMPDIR:-/tmp}")
    if grep -qs 'No space left on device' "$log" || [ "${free:-99}" -lt 20 ] || [ "${free_tmp:-99}" -lt 20 ]; then
        fail "The disk is full: $free MB are free for $venv, $free_tmp MB for temporary files in ${TMPDIR:-/tmp}." \
            'Make room (the demo needs 600 MB, the tests 3,000 MB), or set VENV or TMPDIR to another disk.'
    fi
    # The last words stand for an index that had nothing at all to offer: it was not reached, or is not one
    if grep -qsE 'name resolution|Name or service not known|NewConnectionError|ConnectTimeout|ReadTimeout|Network is unreachable|Connection refused|ProxyError|SSLError|Connection(Reset|Aborted)?Error|from versions: none' "$log"; then
        fail 'The network cannot be reached: pip could not download the packages that bftrain needs.' \
            'Check the connection, and the proxy or mirror that pip is told to use (pip config list).' \
            "What pip said is in $log."
    fi
    say "Installing into $venv failed. The last lines of $log:" >&2
    tail -n 8 "$log" >&2 || true
    exit 1
}

make_venv() {
    python=$(tools/find-python.sh)
    if [ -e "$venv" ] && ! [ -e "$venv/pyvenv.cfg" ] && ! [ -e "$state" ] && [ -n "$(ls -A "$venv")" ]; then
        fail "$venv is there, and is no virtual environment. Choose another place: make VENV=DIR ..."
    fi
    found=$(others | head -n 5 | paste -s -d ' ' -)
    if [ -n "$found" ]; then
        fail "$venv cannot be used: $reason. It holds packages that make did not install ($found), so it stays as it is." \
            'Choose another place: make VENV=DIR ...; or remove it yourself.'
    fi
    # Not -rf on the directory itself: it may be a mount point or a link to a faster disk
    [ ! -e "$venv" ] || find "$venv/" -mindepth 1 -delete
    mkdir -p "$state" || fail "$venv cannot be written. Choose another place: make VENV=DIR ..."
    : >"$state/packages" || explain
    : >"$unfinished" || explain
    "$python" -m venv "$venv" >"$log" 2>&1 || explain
    (cd "$venv" && pwd -P) >"$state/place" || explain
}

if [ -e "$venv" ]; then
    reason=$(why_not)
    if [ -n "$reason" ]; then
        [ -z "$(ls -A "$venv")" ] || say "Making $venv again: $reason."
        make_venv
    fi
else
    make_venv
fi

key="$(cat pyproject.toml tools/build_hook.py solvers/bftrain_solvers/knapsack/library_file.py solvers/bftrain_solvers/knapsack/compiled/*.[ch] | sha256sum) $(identity "$venv/bin/python")"
stamp=$state/has-$layer
[ "$(cat "$stamp" 2>/dev/null || true)" != "$key" ] || [ -e "$unfinished" ] || exit 0

case $layer in
    base) takes='1 minute, 600 MB' ;;
    *horovod*) takes='3 to 10 minutes, 3 GB; PyTorch is most of it' ;;
    *) takes='1 to 5 minutes' ;;
esac
say "Installing bftrain and what it needs into $venv ($takes the first time) ..."
mkdir -p "$state"
[ -e "$unfinished" ] || packages >"$unfinished" || explain
what=.[$layer]
[ "$layer" != base ] || what=.
# A source archive comes without the links
mkdir -p tools/import_path
for package in bftrain */bftrain_*; do
    [ -e "tools/import_path/${package#*/}" ] || ln -s "../../$package" tools/import_path/ || explain
done
# PIP_USER=0: a user's own setting would send the packages elsewhere.
# PIP_RETRIES: pip asks five times, a minute in all, before it says that there is no network
PIP_USER=0 PIP_RETRIES="${PIP_RETRIES:-2}" "$venv/bin/python" -m pip install --no-input --disable-pip-version-check --progress-bar off \
    --no-compile --editable "$what" >>"$log" 2>&1 || explain
# A first look imports few modules, and Python keeps the bytecode of these by itself. pip would compile all, on one core
if [ "$layer" != base ]; then
    "$venv/bin/python" -m compileall -q -j 0 -x '/tests?/|/testing/|/transformers/models/' \
        "$venv"/lib/python3*/site-packages >>"$log" 2>&1 || true # some files are templates, or for another Python
fi
contents >"$state/contents" || explain
packages | LC_ALL=C comm -13 "$unfinished" - >>"$state/packages" || explain
LC_ALL=C sort -u -o "$state/packages" "$state/packages" || explain
printf '%s\n' "$key" >"$stamp" || explain
rm "$unfinished"
