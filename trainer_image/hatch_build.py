"""Compiles the package's C and C++ code beside its source, if there is a compiler: `cc` and `c++`, or the values of CC
and CXX.

Without the compiled sum tree the replay memory is slower. Without the frame guard, eight foreign bytes on the RPC port
can allocate gigabytes of memory. Without the preloaded part of the tunnel, jobs cannot be encrypted. Only wheels
contain the gate of the RPC port, and only if torch is installed where they are built (`uv build --no-build-isolation`).
Otherwise `python -m rltraining_trainer.transport.gate` compiles it.

A wheel without compiled code is for every platform (`py3-none-any`). On Linux, a wheel with the three libraries has the
tag of the oldest glibc that both can use (`manylinux_2_34_x86_64`), which package indexes accept. They do not accept a
wheel with the gate, which fits one version of torch.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SUM_TREE = "rltraining_trainer/dataflow/replay/sum_tree.c"
LINUX = ("rltraining_trainer/transport/frame_guard.c", "rltraining_trainer/tunnel/preload.c")
GATE = "rltraining_trainer/transport/gate"
GLIBC_MIN = 17
"""Of the oldest tag that indexes accept without doubt: manylinux2014."""
OPTIONS = ["-O2", "-shared", "-fPIC", "-ffp-contract=off", "-fexceptions"]
"""-ffp-contract keeps sums and products apart, as numpy computes them; exceptions of C++ pass through the frame guard."""


class CustomBuildHook(BuildHookInterface[Any]):
    """For wheels and for editable installs."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        sources = (SUM_TREE, *LINUX) if sys.platform == "linux" else (SUM_TREE,)
        libraries = [library for source in sources if (library := self._compile(source))]
        if libraries:
            build_data["pure_python"] = False
            # Any Python of this platform.
            build_data["tag"] = f"py3-none-{_oldest_platform(libraries)}"
            build_data["artifacts"] += [str(library.relative_to(self.root)) for library in libraries]
        if version == "standard" and importlib.util.find_spec("torch") is not None:
            self._compile_gate(build_data)

    def _compile_gate(self, build_data: dict[str, Any]) -> None:
        command = [sys.executable, str(Path(self.root, GATE, "build.py"))]
        done = subprocess.run(command, capture_output=True, text=True)  # noqa: S603
        if done.returncode:
            self.app.display_warning(f"left out the gate of the RPC port: {done.stderr}")
            return
        build_data["pure_python"] = False
        # This Python alone, since the gate uses its C API.
        python = f"cp{sys.version_info.major}{sys.version_info.minor}"
        build_data["tag"] = f"{python}-{python}-{_platform()}"
        build_data["artifacts"].append(f"{GATE}/_gate.*.so")

    def _compile(self, name: str) -> Path | None:
        """Compiles a source into a library beside it, which Python loads with ctypes. Returns None without a compiler."""
        source = Path(self.root, name)
        library = source.with_name(f"lib{source.stem}.so")
        library.unlink(missing_ok=True)
        compiler = shlex.split(os.environ.get("CC", "cc"))
        if not compiler or not shutil.which(compiler[0]):
            return None
        command = [*compiler, *OPTIONS, "-o", str(library), str(source)]
        done = subprocess.run(command, capture_output=True, text=True)  # noqa: S603
        if done.returncode:
            self.app.display_warning(f"left out {library.name}: {shlex.join(command)}: {done.stderr}")
            return None
        return library


def _oldest_platform(libraries: list[Path]) -> str:
    """Returns the tag of the oldest platform on which the libraries can be loaded. They need nothing but libc."""
    if platform.libc_ver()[0] != "glibc":  # macOS, or a Linux with musl
        return _platform()
    # A library lists the glibc in which each of its functions appeared: GLIBC_2.34.
    needed = [
        int(minor) for library in libraries for minor in re.findall(rb"GLIBC_2\.(\d+)", library.read_bytes())
    ]
    return _platform().replace("linux", f"manylinux_2_{max(GLIBC_MIN, *needed)}", 1)


def _platform() -> str:
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")
