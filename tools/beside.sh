#!/bin/sh
# tools/beside.sh ONE OTHER...: run the command line ONE, with less right to the cores, beside OTHER and its arguments; fail if
# either fails. What ONE prints comes after what OTHER prints.
set -eu
one=$1
shift

printed=$(mktemp)
nice -n 5 sh -c "exec $one" >"$printed" 2>&1 &
beside=$!
# A shell lets what it starts in the background ignore Ctrl-C
trap 'kill "$beside" 2>/dev/null || true; rm -f "$printed"' EXIT
trap 'exit 130' INT TERM

code=0
"$@" || code=$?
other=0
wait "$beside" || other=$?
cat "$printed"
[ "$code" -ne 0 ] || code=$other
exit "$code"
