"""Checks whether the code that a policy names is in an installed package, or may be part of the policy's own
archive."""

from __future__ import annotations

import importlib.util
import site
import sysconfig
from pathlib import Path

from rltraining_trainer.errors import BadConfiguration


class UntrustedCode(BadConfiguration):
    """A policy needs user code that the caller has not trusted."""

    def __init__(self, policy: str, part: str, module: str) -> None:
        self.needs = f"its {part} is code of the module {module!r}, which belongs to no installed package"
        super().__init__(
            f"{policy}: {self.needs}: if you trust whoever made this policy, add --trust-code "
            "(in Python: trust_code=True)"
        )


def check_code(policy: str, part: str, reference: str | None) -> None:
    """Raises UntrustedCode unless ``reference`` (``module:name``, or a name alone) is code of an installed package.

    Only the interpreter's site-packages count as installed. The current folder, the folder of the policy and PYTHONPATH may
    all hold an unpacked archive, and the standard library contains no networks or environments.
    """
    module, separator, _ = (reference or "").rpartition(":")
    if separator and not _is_installed(module):
        raise UntrustedCode(policy, part, module)


def _is_installed(module: str) -> bool:
    """Returns whether an import would find the module's package only in site-packages. Does not execute the package."""
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
