"""The operator's requests in all previous tests need exactly the permissions that the chart grants."""

from __future__ import annotations

import json

from jobs import Json, Team

NOT_USED_HERE = {
    ("poddisruptionbudgets", "get"),  # read when an object of the same name exists already
    ("networkpolicies", "get"),
    ("services", "get"),
    ("configmaps", "get"),
    ("persistentvolumeclaims", "get"),
    ("pods", "get"),
    ("networkpolicies", "delete"),  # when jobs.networkPolicy.enabled is turned off
    ("networkpolicies", "patch"),  # when the operator's settings, or the operator itself, have changed
    ("poddisruptionbudgets", "patch"),
    ("services", "patch"),
}

NOT_KNOWN_YET = "cannot find RESTMapping"
"""An API server that has just started cannot resolve an owner's kind yet. No permission is missing."""


def test_the_role_is_exactly_what_is_needed(team: Team) -> None:
    user = f"system:serviceaccount:{team.operator_namespace}:{team.release}"
    used: set[tuple[str, str]] = set()
    refused = []
    for entry in team.audit():
        # Skip unauthenticated requests, which have no user name. An earlier test kills the API server.
        ref = entry.get("objectRef") or {}
        if entry["user"].get("username") != user or not ref.get("resource"):
            continue
        resource = "/".join(filter(None, (ref["resource"], ref.get("subresource"))))
        answer = entry["responseStatus"]
        if (
            answer.get("reason") == "Forbidden"
            and "cannot" in answer["message"]
            and NOT_KNOWN_YET not in answer["message"]
            and not _of_another_release(resource, ref, team)
        ):
            refused.append((entry["verb"], resource, answer["message"]))
        used.add((resource, entry["verb"]))
    assert not refused, "asked for more than the chart's role"

    granted = set()
    selector = ("-l", "app.kubernetes.io/name=rltraining-operator", "-o", "json")
    for kind in ("clusterrole", "role"):
        for role in json.loads(team.operator("get", kind, *selector))["items"]:
            if any("aggregate-to" in label for label in role["metadata"].get("labels", {})):
                continue  # permissions of users
            for rule in role["rules"]:
                granted |= {(resource, verb) for resource in rule["resources"] for verb in rule["verbs"]}
    # required by admission, not by a separate request
    finalizers = {("rltrainingjobs/finalizers", "update")}
    unused = granted - used - finalizers - NOT_USED_HERE
    assert not unused, f"granted and never used: {sorted(unused)}"


def _of_another_release(resource: str, ref: Json, team: Team) -> bool:
    """Returns whether a request is for the Lease of another release. That release's chart grants the right to read it, until
    it is uninstalled."""
    return resource == "leases" and ref["namespace"] != team.operator_namespace
