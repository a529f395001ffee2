"""Compiles the replay's sum tree beside its source, if there is a C compiler: `cc`, or what CC says. Without one, or with one
that fails, the package is all Python and does the same more slowly."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = "rltraining_trainer/dataflow/replay"
OPTIONS = ["-O2", "-shared", "-fPIC", "-ffp-contract=off"]
"""The last keeps sums and products apart, as numpy computes them."""


class CustomBuildHook(BuildHookInterface[Any]):
    """For wheels and for editable installs."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        source = Path(self.root, FOLDER, "sum_tree.c")
        library = source.with_name("libsum_tree.so")
        library.unlink(missing_ok=True)
        compiler = shlex.split(os.environ.get("CC", "cc"))
        if not compiler or not shutil.which(compiler[0]):
            return
        command = [*compiler, *OPTIONS, "-o", str(library), str(source)]
        done = subprocess.run(command, capture_output=True, text=True)  # noqa: S603
        if done.returncode:
            self.app.display_warning(f"left out {library.name}: {shlex.join(command)}: {done.stderr}")
            return
        build_data["pure_python"] = False
        # Any Python of this platform: it is loaded with ctypes.
        build_data["tag"] = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["artifacts"].append(f"{FOLDER}/{library.name}")
