"""Lists and finds the built-in examples: the manifests in this package, and the modules they import.

The folder `examples/` beside this file is a link to the repository's. Wheels contain its files.
"""

from __future__ import annotations

from pathlib import Path

from rltraining.printable import say

FOLDER = Path(__file__).with_name("examples")


def find(name: str) -> Path | None:
    """Returns the manifest of an example, such as `cartpole-impala`. Returns None if there is none, or if a file or
    folder has that name."""
    path = FOLDER / f"{name}.yaml"
    return path if path in _manifests() and not Path(name).exists() else None


def print_list() -> None:
    """Prints the name and the first comment line of each example."""
    manifests = _manifests()
    width = max(len(path.stem) for path in manifests)
    for path in manifests:
        about = path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        say(f"{path.stem:{width}}  {about}")


def _manifests() -> list[Path]:
    return sorted(FOLDER.glob("*.yaml"), key=lambda path: path.stem)
