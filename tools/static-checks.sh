#!/bin/sh
# tools/static-checks.sh: ruff, mypy and the import contracts, with the tools of $VENV. Says something only if one fails.
set -eu
cd "$(dirname "$0")/.."
. tools/lib.sh

"$venv/bin/ruff" check --quiet
"$venv/bin/ruff" format --check --quiet || fail "Format with: $venv/bin/ruff format"
"$venv/bin/mypy" --no-error-summary
tools/quiet.sh "$venv/bin/lint-imports"
