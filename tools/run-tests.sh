#!/bin/sh
# tools/run-tests.sh ARGUMENT...: run pytest in $VENV with these arguments, without benchmarks and soaks, and what failed
# once more (run_pytest.py). With HOROVOD=yes Horovod is installed first if its wheel is kept; if not, it is built beside
# the tests that do not need it, and the tests that do need it run last.
set -eu
cd "$(dirname "$0")/.."
. tools/lib.sh

python=$venv/bin/python
chosen='not bench and not soak'
no_tests=5 # pytest's exit code where no test was chosen

if [ "${HOROVOD:-}" != yes ] || "$python" tools/horovod_wheel.py --if-kept; then
    exec "$python" tools/run_pytest.py -m "$chosen" "$@"
fi

nice "$python" tools/horovod_wheel.py --if-possible --build-only &
build=$!
# A shell lets what it starts in the background ignore Ctrl-C
trap 'kill "$build" 2>/dev/null || true' EXIT
trap 'exit 130' INT TERM

code=0
"$python" tools/run_pytest.py -m "$chosen and not horovod" "$@" || code=$?
[ "$code" -le 1 ] || [ "$code" = "$no_tests" ] || exit "$code"
say 'Next: the tests that need Horovod.'
built=0
wait "$build" || built=$?
trap - EXIT
"$python" tools/horovod_wheel.py --if-kept || true
later=0
"$python" tools/run_pytest.py -m "$chosen and horovod" "$@" || later=$?

[ "$built" = 0 ] || exit "$built"
if [ "$later" = "$no_tests" ]; then exit "$code"; fi
if [ "$code" = "$no_tests" ]; then exit "$later"; fi
if [ "$code" != 0 ]; then exit "$code"; fi
exit "$later"
