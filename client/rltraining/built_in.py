"""Lists and finds the built-in examples: the manifests in this package, and the modules they import.

The folder `examples/` beside this file is a link to the repository's. Wheels contain its files.
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path, PurePath

from rltraining.printable import say

FOLDER = Path(__file__).with_name("examples")


def find(name: str) -> Path | None:
    """Returns the manifest of an example, such as `cartpole-impala` or `zoo/hopper-ppo`. Returns None if there is none,
    or if a file or folder has that name."""
    path = FOLDER / f"{name}.yaml"
    return path if path in _manifests() and not Path(name).exists() else None


def name_of(path: Path) -> str | None:
    """Returns the name of the example with this manifest, or None if the path is another file."""
    resolved = path.resolve()
    return next((name for name in names() if (FOLDER / f"{name}.yaml").resolve() == resolved), None)


def similar(name: str) -> list[str]:
    """Returns at most three examples with similar names, or only the example in `zoo/` with exactly this name. The name
    is compared with the last part of a path, which must then be equal."""
    examples = names()
    by_short = {PurePath(each).name: each for each in reversed(examples)}
    wanted = name.lower().removesuffix(".yaml")
    last = PurePath(wanted).name
    if last in by_short:
        return [by_short[last]]
    if "/" in wanted.removeprefix("zoo/"):
        return []
    if wanted.startswith("zoo/"):
        by_short |= {PurePath(each).name: each for each in examples if each.startswith("zoo/")}
    close = get_close_matches(last, by_short, n=3, cutoff=0.7)
    return [by_short[short] for short in close]


def names() -> list[str]:
    """Returns the names of all examples, the zoo last."""
    return [path.relative_to(FOLDER).with_suffix("").as_posix() for path in _manifests()]


def print_list() -> None:
    """Prints the name and the first comment line of each example, and the folder of all on standard error."""
    examples = dict(zip(names(), _manifests(), strict=True))
    width = max(map(len, examples))
    for name, path in examples.items():
        about = path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        say(f"{name:{width}}  {about}")
    say(f"\nfolder of the examples: {FOLDER}", err=True)


def _manifests() -> list[Path]:
    folders = (FOLDER, FOLDER / "zoo")
    return [path for folder in folders for path in sorted(folder.glob("*.yaml"), key=lambda path: path.stem)]
