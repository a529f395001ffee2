#!/bin/sh
# Resolves and pins the dependencies of the four distributions, of the tests, and of the builds of the images. This project's
# packages are left out, because they are not on an index.
set -eu
uv=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf 'rltraining\nrltraining-api\nrltraining-operator\nrltraining-trainer\n' > "$work/ours.txt"
echo "# Every version this project is built, tested and shipped with. Renew with: make constraints"
hatchling=$(sed -n 's/^requires = \["\(.*\)"\]$/\1/p' crds/pyproject.toml)
printf '%s\n' uv pip ziglang "$hatchling" | cat - tests/requirements.txt > "$work/requirements.in"
UV_EXCLUDE="$work/ours.txt" "$uv" pip compile -q --no-header --no-annotate --no-emit-index-url --all-extras --python-version 3.11 \
  crds/pyproject.toml operator/pyproject.toml trainer_image/pyproject.toml client/pyproject.toml "$work/requirements.in"
