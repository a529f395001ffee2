"""The rights that the chart gives. test_chart_release.py asks an API server what they permit, and tests/cluster/live compares
them with what the operator uses."""

from __future__ import annotations

from typing import Any

import pytest
from helm import NAMESPACE, RELEASE, Helm, Rendered

Rules = set[tuple[str, str, str]]
"""API group, resource, verb."""


def rules_of(role: dict[str, Any]) -> Rules:
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_groups_of_pods_are_a_right_of_their_own(helm: Helm, defaults: Rendered) -> None:
    without = rules_of(defaults.one("ClusterRole", RELEASE))
    rendered = helm.render({"gangScheduling": {"enabled": True}})
    assert not any("*" in part for rule in without for part in rule)
    assert rules_of(rendered.one("ClusterRole", RELEASE)) - without == {
        (group, "podgroups", verb)
        for group in ("scheduling.volcano.sh", "scheduling.x-k8s.io")
        for verb in ("get", "create", "patch")
    }


@pytest.mark.parametrize("values", [{}, {"watchNamespaces": [NAMESPACE]}])
def test_the_lease_is_its_own_and_in_the_namespace_of_the_release(helm: Helm, values: dict[str, Any]) -> None:
    role = helm.render(values).one("Role", f"{RELEASE}-leader-election", NAMESPACE)
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    assert role["rules"] == [
        {**leases, "verbs": ["create"]},
        {**leases, "resourceNames": [RELEASE], "verbs": ["get", "update"]},
    ]


def test_rights_can_be_somebody_elses_work(helm: Helm) -> None:
    kinds = helm.render({"rbac": {"create": False, "userRoles": False}}).kinds()
    assert not kinds & {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
