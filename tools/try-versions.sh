#!/bin/sh
# tools/try-versions.sh ARGUMENT...: run pytest with these arguments in environments of their own: with the lowest versions
# that pyproject.toml allows, then with the newest ones, on each Python of those that bftrain supports that is on PATH.
# Each environment stays in .venv-NAME for the next time.
set -eu
cd "$(dirname "$0")/.."
. tools/lib.sh

layer=test,cbc,gurobi

try() { # NAME PYTHON ARGUMENT...
    name=$1 python=$2
    shift 2
    VENV=.venv-$name PYTHON=$python tools/venv.sh "$layer"
    say "Tests with $("$python" -V), $name:"
    ".venv-$name/bin/python" -m pytest -m 'not bench and not soak' "$@"
}

constraints=$(mktemp)
trap 'rm -f "$constraints"' EXIT
pythons=''
minor=${oldest#3.}
while [ "$minor" -le "${newest#3.}" ]; do
    python=$(command -v "python3.$minor" || true)
    if [ -n "$python" ] && fits "$python"; then
        pythons="$pythons python3.$minor"
    else
        say "Python 3.$minor is not on PATH: not tried."
    fi
    minor=$((minor + 1))
done
[ -n "$pythons" ] || fail "None of Python $oldest to $newest is on PATH."

# The lowest versions on the oldest Python: they have no wheels for newer ones
first=${pythons# } first=${first%% *}
"$first" tools/lowest_versions.py test cbc gurobi >"$constraints"
(
    export PIP_CONSTRAINT="$constraints"
    try lowest "$first" "$@"
)
for python in $pythons; do
    try "newest-${python#python}" "$python" "$@"
done
