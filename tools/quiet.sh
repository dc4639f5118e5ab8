#!/bin/sh
# tools/quiet.sh COMMAND...: run it, and show what it says only if it fails.
set -eu
said=$("$@" 2>&1) || {
    code=$?
    printf '%s\n' "$said" >&2
    exit "$code"
}
