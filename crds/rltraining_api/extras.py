"""Names the command that installs an extra of the distribution `rltraining`."""

from __future__ import annotations


def install_command(extra: str) -> str:
    """Returns the command for the wheels of `make wheels`, as docs/wheels.md shows it.

    It names the files of the wheels, because a name alone would be looked up on a package index, where
    none of our distributions is.
    """
    return f"pip install -c constraints.txt dist/*.whl 'rltraining[{extra}]'"
