#!/bin/sh
# Remove all that make made. A virtual environment that someone else made stays.
set -eu
cd "$(dirname "$0")/.."
. tools/lib.sh

if [ -e "$state/place" ]; then
    rm -rf "$venv"
elif [ -e "$venv" ]; then
    say "$venv stays: make did not make it."
fi
rm -rf .venv-peers
rm -rf demo site dist build tests/artefacts .coverage .coverage.* .hypothesis
rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
find . -path "./$venv" -prune -o -path ./.git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
