"""The rights that the chart gives: as few as the operator needs, and no others in any namespace."""

from __future__ import annotations

from typing import Any

import pytest
from helm import NAMESPACE, RELEASE, Helm, Rendered

Rules = set[tuple[str, str, str]]
"""API group, resource, verb."""

RULES = {
    ("rltraining.dev", "rltrainingjobs"): "list watch delete",
    ("rltraining.dev", "rltrainingjobs/status"): "patch",
    ("rltraining.dev", "rltrainingjobs/finalizers"): "update",
    ("", "pods"): "get list watch create delete",
    ("", "services"): "get list create patch",
    ("", "configmaps"): "get list create patch",
    ("", "secrets"): "get create",
    ("", "persistentvolumeclaims"): "get list create",
    ("", "events"): "create patch",
    ("networking.k8s.io", "networkpolicies"): "get list create patch delete",
    ("policy", "poddisruptionbudgets"): "get list create patch delete",
}
POD_GROUPS = {
    (group, "podgroups"): "get create patch" for group in ("scheduling.volcano.sh", "scheduling.x-k8s.io")
}


def rules_of(role: dict[str, Any]) -> Rules:
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def spread(table: dict[tuple[str, str], str]) -> Rules:
    return {(group, resource, verb) for (group, resource), verbs in table.items() for verb in verbs.split()}


def test_the_operator_may_do_this_and_no_more(defaults: Rendered) -> None:
    assert rules_of(defaults.one("ClusterRole", RELEASE)) == spread(RULES)
    binding = defaults.one("ClusterRoleBinding")
    assert binding["roleRef"] == {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": RELEASE,
    }


def test_groups_of_pods_are_a_right_of_their_own(helm: Helm) -> None:
    rendered = helm.render({"gangScheduling": {"enabled": True}})
    assert rules_of(rendered.one("ClusterRole", RELEASE)) == spread(RULES | POD_GROUPS)


def test_in_chosen_namespaces_it_has_roles_there_and_nothing_in_the_cluster(helm: Helm) -> None:
    rendered = helm.render({"watchNamespaces": ["team-a", "team-b"], "rbac": {"userRoles": False}})
    assert not rendered.kinds() & {"ClusterRole", "ClusterRoleBinding"}
    for namespace in ("team-a", "team-b"):
        assert rules_of(rendered.one("Role", RELEASE, namespace)) == spread(RULES)
        binding = rendered.one("RoleBinding", RELEASE, namespace)
        assert binding["roleRef"] == {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "Role",
            "name": RELEASE,
        }
        assert binding["subjects"][0]["namespace"] == NAMESPACE
    assert len(rendered.all("Role")) == len(rendered.all("RoleBinding")) == 3


@pytest.mark.parametrize("values", [{}, {"watchNamespaces": [NAMESPACE]}])
def test_the_lease_is_its_own_and_in_the_namespace_of_the_release(helm: Helm, values: dict[str, Any]) -> None:
    role = helm.render(values).one("Role", f"{RELEASE}-leader-election", NAMESPACE)
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    assert role["rules"] == [
        {**leases, "verbs": ["create"]},
        {**leases, "resourceNames": [RELEASE], "verbs": ["get", "update"]},
    ]


def test_nothing_is_a_wildcard_and_no_role_is_bound_to_more_than_the_operator(helm: Helm) -> None:
    for values in ({}, {"watchNamespaces": ["a"]}, {"gangScheduling": {"enabled": True}}):
        rendered = helm.render(values)
        for role in (*rendered.all("Role"), *rendered.all("ClusterRole")):
            assert not any("*" in part for rule in rules_of(role) for part in rule)
        for binding in (*rendered.all("RoleBinding"), *rendered.all("ClusterRoleBinding")):
            assert [subject["kind"] for subject in binding["subjects"]] == ["ServiceAccount"]
            assert binding["subjects"][0]["name"] == RELEASE


def test_rights_can_be_somebody_elses_work(helm: Helm) -> None:
    kinds = helm.render({"rbac": {"create": False, "userRoles": False}}).kinds()
    assert not kinds & {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}


def test_users_get_jobs_with_the_roles_they_have(defaults: Rendered) -> None:
    aggregate = "rbac.authorization.k8s.io/aggregate-to-"

    def joins(role: dict[str, Any]) -> set[str]:
        labels = role["metadata"]["labels"]
        return {label.removeprefix(aggregate) for label in labels if label.startswith(aggregate)}

    view, edit = (
        defaults.one("ClusterRole", f"{RELEASE}-view"),
        defaults.one("ClusterRole", f"{RELEASE}-edit"),
    )
    assert joins(view) == {"view"}
    assert joins(edit) == {"edit", "admin"}
    assert rules_of(view) == spread(
        {
            ("rltraining.dev", "rltrainingjobs"): "get list watch",
            ("rltraining.dev", "rltrainingjobs/status"): "get",
            ("rltraining.dev", "rltrainingjobs/scale"): "get",
        }
    )
    assert rules_of(edit) == spread(
        {
            ("rltraining.dev", "rltrainingjobs"): "create update patch delete deletecollection",
            ("rltraining.dev", "rltrainingjobs/scale"): "update patch",
        }
    )
