"""Checks whether a policy names only code of installed packages, or code that its archive may
contain.

Code of an installed package is harmless only if it is used as intended. A policy also chooses the
arguments, so arbitrary functions would be dangerous. For example, torch has classes that truncate
the file named by an argument. Untrusted policies may therefore name only classes of networks and of
wrappers.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import site
import sysconfig
from pathlib import Path
from typing import Any

from gymnasium.wrappers import RecordVideo

from rltraining_trainer.errors import BadConfiguration


class UntrustedCode(BadConfiguration):
    """A policy needs user code that the caller has not trusted."""

    def __init__(self, policy: str, needs: str) -> None:
        self.needs = needs
        """The untrusted code, as a clause such as `its network is code of …`."""
        super().__init__(
            f"{policy}: {needs}: if you trust the source of this policy, add --trust-code "
            "(in Python: trust_code=True)"
        )


def check_code(policy: str, part: str, reference: str | None) -> None:
    """Raises UntrustedCode unless ``reference`` (``module:name``, or a name alone) is code of an
    installed package.

    Only the interpreter's site-packages count as installed. The current directory, the directory of
    the policy and PYTHONPATH may contain an unpacked archive, and the standard library contains no
    networks or environments.
    """
    module, separator, _ = (reference or "").rpartition(":")
    if separator and not _is_installed(module):
        raise UntrustedCode(
            policy, f"its {part} is code of the module {module!r}, which belongs to no installed package"
        )
    # Importing __main__ runs a program.
    if module.endswith(".__main__"):
        raise UntrustedCode(policy, f"its {part} is code of the program {module!r}")


def check_class(policy: str, part: str, reference: str | None, base: type) -> None:
    """Raises UntrustedCode unless ``reference`` is an installed subclass of ``base``."""
    check_code(policy, part, reference)
    if not reference:
        return
    module, _, path = reference.partition(":")
    try:
        found: Any = functools.reduce(getattr, path.split("."), importlib.import_module(module))
    except Exception as error:
        raise UntrustedCode(policy, f"its {part} {reference!r} cannot be imported: {error}") from error
    if not isinstance(found, type) or not issubclass(found, base):
        raise UntrustedCode(policy, f"its {part} is {reference!r}, which is no subclass of {base.__name__}")
    if issubclass(found, RecordVideo):
        raise UntrustedCode(policy, f"its {part} is {reference!r}, which writes files")


def _is_installed(module: str) -> bool:
    """Returns whether a module is only in site-packages. Does not execute its package."""
    try:
        spec = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return False
    if spec is None:
        return False
    places = [spec.origin] if spec.has_location else list(spec.submodule_search_locations or ())
    folders = _site_packages()
    return bool(places) and all(
        any(Path(place).resolve().is_relative_to(folder) for folder in folders) for place in places if place
    )


def _site_packages() -> set[Path]:
    names = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()]
    if site.ENABLE_USER_SITE:
        names.append(site.getusersitepackages())
    return {Path(name).resolve() for name in names}
