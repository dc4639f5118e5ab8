#!/bin/sh
# Print the Python to use: $PYTHON, or the first on PATH that fits. It must be 3.11 to 3.13 and able to make
# virtual environments.
set -eu
cd "$(dirname "$0")/.."
. tools/lib.sh

makes_venvs() { "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }

if [ -n "${PYTHON:-}" ]; then
    command -v "$PYTHON" >/dev/null 2>&1 || fail "PYTHON=$PYTHON: there is no such command."
    fits "$PYTHON" || fail \
        "PYTHON=$PYTHON is version $(version_of "$PYTHON" || say unknown); bftrain needs Python $oldest to $newest." \
        "Leave PYTHON out to let make look for one, or name another."
    set -- "$PYTHON"
else
    set -- python3 python3.13 python3.12 python3.11 python
fi

seen='' without_venv=''
for candidate; do
    found=$(command -v "$candidate" 2>/dev/null) || continue
    if ! fits "$found"; then
        seen="$seen, $candidate is $(version_of "$found" || say broken)"
    elif makes_venvs "$found"; then
        say "$found"
        exit 0
    else
        without_venv=${without_venv:-$found}
    fi
done

if [ -n "$without_venv" ]; then
    # Debian packs ensurepip apart from Python
    package=python3-venv
    [ "$(version_of "$without_venv")" = "$(version_of python3 || true)" ] ||
        package=$(version_of "$without_venv" | sed 's/^\(3\.[0-9]*\).*/python\1-venv/')
    fail "$without_venv cannot make virtual environments: its modules venv and ensurepip are not installed." \
        "On Debian and Ubuntu, install them with: apt-get install $package"
fi
seen=${seen#, }
fail "bftrain needs Python $oldest to $newest, and none is on PATH (${seen:-there is no python3 at all})." \
    "Install one, on Debian 12 with: apt-get install python3 python3-venv" \
    "or name one that is installed elsewhere: make PYTHON=/path/to/python$newest ..."
