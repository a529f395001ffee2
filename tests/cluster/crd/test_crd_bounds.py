"""Every bound in the CRD's spec: what is at it is accepted, what is beyond it is refused by name; the models agree."""

from __future__ import annotations

import pytest
from bounds import KINDS, KNOWN, Case
from schema_walk import nodes
from verdicts import Complaint, Complaints, Server, but_for_the_whole, of_the_models


def complaint_about(case: Case, found: Complaints, judge: str) -> str | None:
    """What is wrong with a judgement; None where nothing is."""
    head = f"{case.field} ({case.what}): {judge}"
    found = but_for_the_whole(found)
    if case.accepted:
        return f"{head} refuses it: {'; '.join(map(str, found))}" if found else None
    if not found:
        return f"{head} accepts it"
    named = any(_names(each, case.field) for each in found)
    return None if named else f"{head} does not name the field: {'; '.join(map(str, found))}"


def _names(complaint: Complaint, field: str) -> bool:
    """Whether it is about the field or an item of it; of an unknown field the name stands in the message only."""
    return (
        complaint.field == field
        or complaint.field.startswith(f"{field}[")
        or f'unknown field "{field}"' in complaint.message
    )


@pytest.mark.parametrize("kind", KINDS)
def test_bounds(server: Server, kind: str) -> None:
    cases = [case for node in nodes() for case in KINDS[kind](node)]
    judged = zip(cases, server.judge(case.manifest for case in cases), strict=True)
    wrong = [complaint_about(case, found, "the API server") for case, found in judged]
    wrong += [complaint_about(case, of_the_models(case.manifest), "rltrain") for case in cases]
    assert cases
    assert not any(wrong), "\n".join(filter(None, wrong))


def test_what_is_empty_takes_its_default_on_the_server_and_is_asked_about_by_rltrain(server: Server) -> None:
    """The one difference: an API server drops a null, but whoever wrote `sampler:` and nothing below it forgot
    something."""
    fields = [node for node in nodes() if "default" in node.schema and not node.schema.get("nullable")]
    manifests = [node.manifest(None) for node in fields]
    for node, manifest, found in zip(fields, manifests, server.judge(manifests), strict=True):
        assert not but_for_the_whole(found), node.name
        assert [each.field for each in of_the_models(manifest)] == [node.name]


def test_no_word_of_the_schema_is_without_a_case() -> None:
    unknown = {word for node in nodes() for word in node.schema} - KNOWN
    assert not unknown, f"these words of the schema may be bounds: {unknown}"
