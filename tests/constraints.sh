#!/bin/sh
# Resolves what the four distributions and the tests need, and prints it pinned. Our own names are not on an index: left out.
set -eu
uv=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for room in crds operator trainer_image client; do
  mkdir "$work/$room"
  sed -E '/^  "rltraining-(api|operator|trainer)",/d; s/"rltraining-trainer\[[a-z0-9]+\]"//' "$room/pyproject.toml" > "$work/$room/pyproject.toml"
done
echo "# Every version this project is built, tested and shipped with. Renew with: make constraints"
echo "uv" | cat - tests/requirements.txt > "$work/requirements.in"
"$uv" pip compile -q --no-header --no-annotate --no-emit-index-url --all-extras --python-version 3.11 \
  "$work"/*/pyproject.toml "$work/requirements.in"
