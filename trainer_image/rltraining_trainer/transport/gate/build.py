"""Compiles gate.cpp for the installed torch. It needs only torch and a C++ compiler: `c++`, or the
value of CXX.

It takes about 15 seconds. As a program it writes the compiled gate beside the source.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType

import torch

SOURCE = Path(__file__).with_name("gate.cpp")
FILE = "_gate" + (sysconfig.get_config_var("EXT_SUFFIX") or ".so")
NAME = "rltraining_trainer.transport.gate._gate"
OPTIONS = ["-O1", "-std=c++20", "-shared", "-fPIC", "-DUSE_DISTRIBUTED", "-DUSE_RPC", "-DUSE_TENSORPIPE"]
PYBIND11_ABI = ("COMPILER_TYPE", "STDLIB", "BUILD_ABI")
LIBRARIES = ["-ltorch_python", "-ltorch", "-ltorch_cpu", "-lc10"]


class NotCompiledError(Exception):
    """The gate cannot be compiled. The message has the reason."""


def compile_gate(path: Path, source: Path = SOURCE) -> None:
    """Compiles the gate to ``path``. Raises NotCompiledError."""
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    if not compiler or not shutil.which(compiler[0]):
        raise NotCompiledError(f"there is no C++ compiler {shlex.join(compiler)!r}: install g++, or set CXX")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)

    # Compile in a temporary folder, so that the file appears atomically.
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        compiled = Path(folder, FILE)
        command = [*compiler, *OPTIONS, *_abi(), *_headers(), str(source), *_libraries(), "-o", str(compiled)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            raise NotCompiledError(f"{shlex.join(command)} failed:\n{done.stderr[-4000:]}")
        compiled.replace(path)


def import_from(path: Path, name: str = NAME) -> ModuleType:
    """Imports a compiled gate. Raises ImportError if it was compiled for another torch."""
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    if torch.__version__.split("+")[0] != module.TORCH_VERSION:
        raise ImportError(f"it was compiled for torch {module.TORCH_VERSION}, not {torch.__version__}")
    return module


def _abi() -> list[str]:
    """Returns the definitions by which pybind11 shares torch's types with the gate. Up to torch 2.8
    they name the compiler that torch was built with. Later versions need no definitions."""
    values = {name: getattr(torch._C, f"_PYBIND11_{name}", None) for name in PYBIND11_ABI}
    return [f'-DPYBIND11_{name}="{value}"' for name, value in values.items() if value is not None]


def _headers() -> list[str]:
    torch_headers = Path(torch.__file__).with_name("include")
    folders = (torch_headers, torch_headers / "torch/csrc/api/include", sysconfig.get_paths()["include"])
    return [f"-isystem{folder}" for folder in folders]


def _libraries() -> list[str]:
    return [f"-L{Path(torch.__file__).with_name('lib')}", *LIBRARIES]


if __name__ == "__main__":
    gate = SOURCE.with_name(FILE)
    compile_gate(gate)
    import_from(gate)
