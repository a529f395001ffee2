"""The rights that the chart gives: as few as the operator needs, and none in other namespaces. test_chart_release.py asks an
API server what they permit, and tests/cluster/live compares them with what the operator uses."""

from __future__ import annotations

from typing import Any

import pytest
from helm import NAMESPACE, RELEASE, Helm, Rendered
from rltraining_operator.pods.children import CHILDREN

Rules = set[tuple[str, str, str]]
"""API group, resource, verb."""

RULES = {
    ("rltraining.dev", "rltrainingjobs"): "list watch delete",
    ("rltraining.dev", "rltrainingjobs/status"): "patch",
    ("rltraining.dev", "rltrainingjobs/finalizers"): "update",
    ("", "pods"): "get list watch create delete",
    ("", "services"): "get list create patch",
    ("", "configmaps"): "get list create patch",
    ("", "secrets"): "create",
    ("", "persistentvolumeclaims"): "get list create",
    ("", "events"): "list create patch",
    ("networking.k8s.io", "networkpolicies"): "get list create patch delete",
    ("policy", "poddisruptionbudgets"): "get list create patch delete",
}
POD_GROUPS = {
    (group, "podgroups"): "get create patch" for group in ("scheduling.volcano.sh", "scheduling.x-k8s.io")
}

POD_MONITORS = {("monitoring.coreos.com", "podmonitors"): "get create patch"}


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


def reference(kind: str) -> dict[str, str]:
    """`roleRef` of a binding to the operator's role of this kind."""
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": RELEASE}


def test_the_operator_may_do_this_and_no_more(defaults: Rendered) -> None:
    assert rules_of(defaults.one("ClusterRole", RELEASE)) == spread(RULES)
    assert defaults.one("ClusterRoleBinding")["roleRef"] == reference("ClusterRole")


def test_groups_of_pods_are_a_right_of_their_own(helm: Helm) -> None:
    rendered = helm.render({"gangScheduling": {"enabled": True}})
    assert rules_of(rendered.one("ClusterRole", RELEASE)) == spread(RULES | POD_GROUPS)


@pytest.mark.parametrize(("per_job", "more"), [(True, POD_MONITORS), (False, {})])
def test_monitors_of_jobs_are_a_right_of_their_own(
    helm: Helm, per_job: bool, more: dict[tuple[str, str], str]
) -> None:
    rendered = helm.render({"metrics": {"podMonitor": {"enabled": True, "perJob": per_job}}})
    assert rules_of(rendered.one("ClusterRole", RELEASE)) == spread(RULES | more)


def test_the_table_of_children_needs_these_rights() -> None:
    needed: Rules = set()
    for child in CHILDREN:
        group = child.api_version.rpartition("/")[0]
        groups = [group] if child.api_version else [group for group, _ in POD_GROUPS]
        needed |= {(group, child.plural, verb) for group in groups for verb in child.verbs}
    children = {child.plural for child in CHILDREN}
    assert needed == {rule for rule in spread(RULES | POD_GROUPS | POD_MONITORS) if rule[1] in children}


def test_in_chosen_namespaces_it_has_roles_there_and_nothing_in_the_cluster(helm: Helm) -> None:
    rendered = helm.render({"watchNamespaces": ["team-a", "team-b"], "rbac": {"userRoles": False}})
    assert not rendered.kinds() & {"ClusterRole", "ClusterRoleBinding"}
    for namespace in ("team-a", "team-b"):
        assert rules_of(rendered.one("Role", RELEASE, namespace)) == spread(RULES)
        binding = rendered.one("RoleBinding", RELEASE, namespace)
        assert binding["roleRef"] == reference("Role")
        assert binding["subjects"][0]["namespace"] == NAMESPACE
    others = {role["metadata"]["name"] for role in rendered.all("Role")} - {RELEASE}
    assert others == {f"{RELEASE}-own-namespace", f"{RELEASE}-lease"}, "both are in its own namespace"
    assert len(rendered.all("Role")) == len(rendered.all("RoleBinding")) == 4


@pytest.mark.parametrize("values", [{}, {"watchNamespaces": [NAMESPACE]}])
def test_lease_and_key_are_its_own_and_in_the_namespace_of_the_release(
    helm: Helm, values: dict[str, Any]
) -> None:
    role = helm.render(values).one("Role", f"{RELEASE}-own-namespace", NAMESPACE)
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    key = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [f"{RELEASE}-key"]}
    assert role["rules"] == [
        {**leases, "verbs": ["create"]},
        {**leases, "resourceNames": [RELEASE], "verbs": ["get", "update"]},
        {**key, "verbs": ["get", "update"]},
    ]


@pytest.mark.parametrize("values", [{}, {"watchNamespaces": ["team-a"]}])
def test_other_releases_may_read_its_lease_and_nothing_else(helm: Helm, values: dict[str, Any]) -> None:
    rendered = helm.render(values)
    role = rendered.one("Role", f"{RELEASE}-lease", NAMESPACE)
    (rule,) = role["rules"]
    assert rule == {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": [RELEASE],
        "verbs": ["get"],
    }
    binding = rendered.one("RoleBinding", f"{RELEASE}-lease", NAMESPACE)
    assert binding["roleRef"] == reference("Role") | {"name": f"{RELEASE}-lease"}
    group = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:serviceaccounts"}
    assert binding["subjects"] == [group]


def test_the_key_is_not_in_the_release_and_survives_it(defaults: Rendered) -> None:
    """helm keeps each release's manifest in a Secret that more people may read."""
    secret = defaults.one("Secret", f"{RELEASE}-key", NAMESPACE)
    assert not {"data", "stringData"} & secret.keys()
    assert secret["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_nothing_is_a_wildcard_and_no_role_is_bound_to_more_than_the_operator(
    helm: Helm, defaults: Rendered, everything: Rendered
) -> None:
    gang = helm.render({"gangScheduling": {"enabled": True}})
    for rendered in (defaults, everything, gang):
        for role in (*rendered.all("Role"), *rendered.all("ClusterRole")):
            assert not any("*" in part for rule in rules_of(role) for part in rule)
        for binding in (*rendered.all("RoleBinding"), *rendered.all("ClusterRoleBinding")):
            if binding["metadata"]["name"] == f"{RELEASE}-lease":
                continue  # its rule and its subject have a test above
            (subject,) = binding["subjects"]
            assert (subject["kind"], subject["name"]) == ("ServiceAccount", RELEASE)


def test_rights_can_be_somebody_elses_work(helm: Helm) -> None:
    kinds = helm.render({"rbac": {"create": False, "userRoles": False}}).kinds()
    assert not kinds & {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
