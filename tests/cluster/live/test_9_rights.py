"""What the operator has asked the API server for, in all tests before: no more than it may, and all that it may."""

from __future__ import annotations

import json

from jobs import Team

NOT_USED_HERE = {
    ("poddisruptionbudgets", "get"),  # read when one of the same name exists already
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
"""An API server that began a moment ago cannot tell yet which kind an owner is of: no right is missing."""


def test_the_role_is_exactly_what_is_needed(team: Team) -> None:
    user = f"system:serviceaccount:{team.operator_namespace}:{team.release}"
    used: set[tuple[str, str]] = set()
    refused = []
    for entry in team.audit():
        # One that was never authenticated has no name: an API server is killed on the way here.
        ref = entry.get("objectRef") or {}
        if entry["user"].get("username") != user or not ref.get("resource"):
            continue
        resource = "/".join(filter(None, (ref["resource"], ref.get("subresource"))))
        answer = entry["responseStatus"]
        if (
            answer.get("reason") == "Forbidden"
            and "cannot" in answer["message"]
            and NOT_KNOWN_YET not in answer["message"]
        ):
            refused.append((entry["verb"], resource, answer["message"]))
        used.add((resource, entry["verb"]))
    assert not refused, "asked for more than the chart's role"

    granted = set()
    selector = ("-l", "app.kubernetes.io/name=rltraining-operator", "-o", "json")
    for kind in ("clusterrole", "role"):
        for role in json.loads(team.operator("get", kind, *selector))["items"]:
            if any("aggregate-to" in label for label in role["metadata"].get("labels", {})):
                continue  # what users may do
            for rule in role["rules"]:
                granted |= {(resource, verb) for resource in rule["resources"] for verb in rule["verbs"]}
    finalizers = {
        ("rltrainingjobs/finalizers", "update")
    }  # asked for by admission, not by a request of its own
    unused = granted - used - finalizers - NOT_USED_HERE
    assert not unused, f"granted and never used: {sorted(unused)}"
