"""Compiles the gate of the RPC port for this user, or with --package beside its source, for an
image."""

from __future__ import annotations

import sys

from rltraining_trainer.transport.gate import cached
from rltraining_trainer.transport.gate.build import FILE, SOURCE, NotCompiledError, compile_gate, import_from


def main(arguments: list[str]) -> int:
    """Prints the path of the compiled gate."""
    if arguments not in ([], ["--package"]):
        print(f"usage: python -m rltraining_trainer.transport.gate [--package]\n\n{__doc__}")
        return 0 if arguments in (["-h"], ["--help"]) else 2
    path = SOURCE.with_name(FILE) if arguments else cached()
    try:
        if arguments or not path.exists():
            compile_gate(path)
            import_from(path)
    except NotCompiledError as error:
        print(f"the gate of the RPC port is not compiled: {error}", file=sys.stderr)
        return 1
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
