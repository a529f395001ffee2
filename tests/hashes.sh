#!/bin/sh
# Writes the files of requirements/: the packages that an image or its build installs, with the versions of constraints.txt and
# the hashes of all their files on the package index, for every platform.
set -eu
uv=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo rltraining-api > "$work/ours.txt"

# Reads the requirements from files or, for -, from the standard input.
lock() {
  name=$1 && shift
  echo "# The hashes of constraints.txt's versions. Renew with: make hashes" > "$work/$name"
  UV_EXCLUDE="$work/ours.txt" "$uv" pip compile -q --no-header --no-annotate --no-emit-index-url --generate-hashes \
    --python-version 3.11 --python-platform x86_64-manylinux_2_34 --constraint constraints.txt "$@" >> "$work/$name"
}

printf 'uv\nhatchling\n' | lock build.txt -
echo ziglang | lock compiler.txt -
lock operator.txt crds/pyproject.toml operator/pyproject.toml
echo pip | lock trainer.txt --all-extras crds/pyproject.toml trainer_image/pyproject.toml -
mkdir -p requirements
mv "$work"/build.txt "$work"/compiler.txt "$work"/operator.txt "$work"/trainer.txt requirements/
