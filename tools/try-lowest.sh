#!/bin/sh
# tools/try-lowest.sh: install bftrain alone with the lowest versions that pyproject.toml allows, and see that it works:
# all public names are imported, records become a log, and the log is replayed into a page. Takes about a minute.
set -eu
cd "$(dirname "$0")/.."
. tools/lib.sh

python=''
for name in python3.11 python3.12; do # the lowest versions have no wheels for newer ones
    if command -v "$name" >/dev/null && fits "$name"; then python=$name && break; fi
done
if [ -z "$python" ]; then
    say 'The lowest versions are not tried: neither Python 3.11 nor 3.12 is on PATH.'
    exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" tools/lowest_versions.py >"$work/constraints.txt"
PIP_CONSTRAINT="$work/constraints.txt" VENV=.venv-lowest-base PYTHON=$python tools/venv.sh base

bftrain=$PWD/.venv-lowest-base/bin/bftrain
.venv-lowest-base/bin/python -W error -c 'import bftrain; [getattr(bftrain, name) for name in bftrain.__all__]'
cd "$work"
cat >jobs.sacct <<'ROWS'
JobID|Start|End|NNodes|NodeList|State
1|0|3600|1|n1|COMPLETED
2|7200|9000|2|n[1-2]|COMPLETED
3|9600|14400|1|n2|COMPLETED
ROWS
"$bftrain" import jobs.sacct -o log.npz -q >import.txt
"$bftrain" replay log.npz --quick -o result -q >replay.txt
[ -s result/report.html ] || fail 'The replay has no page.'
say "bftrain works with the lowest versions that are allowed, on $("$OLDPWD/.venv-lowest-base/bin/python" -V)."
