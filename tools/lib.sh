# shellcheck shell=sh disable=SC2034
# Words for the other scripts, which read this file from the root of the repository.

venv=${VENV:-.venv}
state=$venv/.bftrain    # what make knows about the virtual environment it made
oldest=3.11 newest=3.13 # Python, as requires-python in pyproject.toml

say() { printf '%s\n' "$@"; }

# Say what is wrong and what to do about it, one line each, and end.
fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

# Free space of the file system of $1, in MB.
free_mb() { df -Pm "$1" 2>/dev/null | awk 'NR == 2 { print $4 }'; }

version_of() { "$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null; }

# Whether the Python $1 is of a version that bftrain supports.
fits() {
    "$1" - "$oldest" "$newest" 2>/dev/null <<'PYTHON'
import sys
oldest, newest = (tuple(int(part) for part in text.split(".")) for text in sys.argv[1:])
sys.exit(not oldest <= sys.version_info[:2] <= newest)
PYTHON
}
