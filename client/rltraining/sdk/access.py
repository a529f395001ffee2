"""Finds the cluster, the credentials and the namespace: a kubeconfig's context, or the service
account of this pod."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rltraining.sdk.errors import ClusterUnreachableError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True)
class Access:
    """Access to a cluster."""

    configuration: Any
    """The official client's `Configuration`."""
    namespace: str
    """The namespace of the context, or `default`."""
    description: str
    """For messages: `context kind-dev of ~/.kube/config (https://127.0.0.1:6443)`."""


def find_access(context: str | None = None, kubeconfig: str | os.PathLike[str] | None = None) -> Access:
    """Finds a cluster like kubectl: the given kubeconfig, KUBECONFIG, ~/.kube/config or the pod's
    service account, in this order.

    Raises ClusterUnreachableError.
    """
    files = _files(kubeconfig)
    if files:
        return _from_kubeconfig(files, context)
    if context is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return _from_pod()
    variable = (
        "KUBECONFIG names no file that exists" if os.environ.get("KUBECONFIG") else "KUBECONFIG is not set"
    )
    raise ClusterUnreachableError(
        f"no cluster is known: {variable}, ~/.kube/config does not exist and this is not a pod: "
        "name a kubeconfig with --kubeconfig"
    )


def _files(kubeconfig: str | os.PathLike[str] | None) -> list[Path]:
    """Returns the existing kubeconfig files. A file that is given explicitly must exist."""
    if kubeconfig is not None:
        path = Path(kubeconfig).expanduser()
        if not path.is_file():
            raise ClusterUnreachableError(f"kubeconfig {kubeconfig}: there is no such file")
        return [path]
    known = os.environ.get("KUBECONFIG") or "~/.kube/config"
    paths = [Path(name).expanduser() for name in known.split(os.pathsep) if name]
    return [path for path in paths if path.is_file()]


def _from_kubeconfig(files: list[Path], context: str | None) -> Access:
    client, config = _official()
    shown, names = ":".join(map(_shown, files)), os.pathsep.join(map(str, files))
    configuration = client.Configuration()
    try:
        contexts, active = config.list_kube_config_contexts(config_file=names)
        chosen = active if context is None else _named(contexts, context, shown)
        config.load_kube_config(
            config_file=names, context=context, client_configuration=configuration, persist_config=False
        )
    except ClusterUnreachableError:
        raise
    except Exception as error:  # YAML, keys, certificates: these errors have no common base class
        raise ClusterUnreachableError(f"kubeconfig {shown} cannot be used: {_first_line(error)}") from None
    namespace = (chosen.get("context") or {}).get("namespace") or DEFAULT_NAMESPACE
    return Access(configuration, namespace, f"context {chosen['name']} of {shown} ({configuration.host})")


def _official() -> tuple[Any, Any]:
    """Returns the modules of the official client. The second has no types."""
    from kubernetes import client, config

    return client, config


def _named(contexts: list[Mapping[str, Any]], name: str, shown: str) -> Mapping[str, Any]:
    for context in contexts:
        if context["name"] == name:
            return context
    known = ", ".join(sorted(str(context["name"]) for context in contexts))
    raise ClusterUnreachableError(f"context {name} is not in kubeconfig {shown}: it has {known or 'none'}")


def _from_pod() -> Access:
    client, config = _official()
    configuration = client.Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)
    except config.ConfigException as error:
        raise ClusterUnreachableError(
            f"the pod's service account cannot be used: {_first_line(error)}"
        ) from None
    file = SERVICE_ACCOUNT / "namespace"
    namespace = file.read_text().strip() if file.is_file() else DEFAULT_NAMESPACE
    return Access(configuration, namespace, f"the pod's service account ({configuration.host})")


def _shown(path: Path) -> str:
    """Formats a path with ~ for the home directory."""
    try:
        return f"~/{path.relative_to(Path.home())}"
    except (ValueError, RuntimeError):
        return str(path)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
