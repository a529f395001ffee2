"""Whose code a policy names: that of an installed package, or code that may have come with the policy."""

from __future__ import annotations

import importlib.util
import site
import sysconfig
from pathlib import Path

from rltraining_trainer.errors import BadConfiguration


class UntrustedCode(BadConfiguration):
    """A policy needs user code, and its caller has not said that this code is trusted."""

    def __init__(self, policy: str, part: str, module: str) -> None:
        self.needs = f"its {part} is code of the module {module!r}, which belongs to no installed package"
        super().__init__(
            f"{policy}: {self.needs}: if you trust whoever made this policy, add --trust-code "
            "(in Python: trust_code=True)"
        )


def check_code(policy: str, part: str, reference: str | None) -> None:
    """Raises UntrustedCode unless ``reference`` (``module:name``, or a name alone) is code of an installed package.

    Only the interpreter's site-packages count as installed. The current folder, the folder of the policy and PYTHONPATH may
    all be what an archive was unpacked to, and a module of the standard library is no network and no environment.
    """
    module, separator, _ = (reference or "").rpartition(":")
    if separator and not _is_installed(module):
        raise UntrustedCode(policy, part, module)


def _is_installed(module: str) -> bool:
    """Whether an import would find the module's package, of which nothing is executed here, in site-packages alone."""
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
