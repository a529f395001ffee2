"""Removes the rules of kube-proxy, kubelet and our CNI network, and no others."""

from __future__ import annotations

import re

from tests.local_kubernetes import network
from tests.local_kubernetes.host import run

FAMILIES = ("iptables", "ip6tables")

SHARED = ("CNI-HOSTPORT-DNAT", "CNI-HOSTPORT-MASQ", "CNI-HOSTPORT-SETMARK")
"""Chains of all networks with port mappings. They are removed when they only contain their own marks."""


def remove() -> None:
    for family in FAMILIES:
        script = removal(run(f"{family}-save", check=False))
        if script:
            run(f"{family}-restore", "--noflush", stdin=script)


def removal(saved: str) -> str:
    """Returns the input of `iptables-restore --noflush` that removes our rules from `saved`."""
    script = []
    for table, lines in _tables(saved).items():
        chains = [line[1:].split()[0] for line in lines if line.startswith(":")]
        rules = [line for line in lines if line.startswith("-A ")]
        ours = {chain for chain in chains if chain.startswith("KUBE-") or _is_of_network(chain, rules)}
        if not any(_chain(rule) == "CNI-HOSTPORT-DNAT" and _target(rule) not in ours for rule in rules):
            ours |= set(SHARED) & set(chains)
        if ours:
            script.append(f"*{table}")
            script += [
                f"-D {rule[3:]}" for rule in rules if _chain(rule) not in ours and _target(rule) in ours
            ]
            script += [f"-F {chain}" for chain in sorted(ours)]
            script += [f"-X {chain}" for chain in sorted(ours)]
            script.append("COMMIT")
    return "".join(f"{line}\n" for line in script)


def _tables(saved: str) -> dict[str, list[str]]:
    tables: dict[str, list[str]] = {}
    for line in saved.splitlines():
        if line.startswith("*"):
            lines = tables[line[1:]] = []
        elif line.startswith((":", "-A ")):
            lines.append(line)
    return tables


def _is_of_network(chain: str, rules: list[str]) -> bool:
    """Returns whether a CNI chain is of our network, which the rule that jumps to the chain names."""
    return chain.startswith("CNI-") and any(
        _target(rule) == chain and f'name: \\"{network.NAME}\\"' in rule for rule in rules
    )


def _chain(rule: str) -> str:
    return rule.split()[1]


def _target(rule: str) -> str:
    found = re.search(r" (?:-j|-g) (\S+)", rule)
    return found[1] if found else ""
