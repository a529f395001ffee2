"""Which of two versions of an object the store keeps."""

from __future__ import annotations

from typing import Any

import pytest
from rltraining_api.names import ANNOTATION_TEMPLATE, KIND, job_labels, pod_labels
from rltraining_operator.cluster import Key
from rltraining_operator.kube.store import TOMBSTONE_SECONDS, Store

KEY = Key("default", "demo")


def pod(version: int, uid: str = "a", phase: str = "Pending") -> dict[str, Any]:
    return {
        "metadata": {
            "name": "demo-sampler-0",
            "namespace": "default",
            "uid": uid,
            "resourceVersion": str(version),
            "labels": pod_labels("demo", "sampler", 0),
        },
        "status": {"phase": phase},
    }


def job(version: int, uid: str = "j") -> dict[str, Any]:
    return {"metadata": {"name": "demo", "namespace": "default", "uid": uid, "resourceVersion": str(version)}}


@pytest.mark.parametrize(("versions", "stays"), [((1, 2), 2), ((2, 1), 2), ((9, 10), 10), ((5, 5), 5)])
def test_the_newer_stays_whatever_comes_last(versions: tuple[int, int], stays: int) -> None:
    store = Store()
    news = [store.put("Pod", pod(version)) for version in versions]
    assert news == [KEY, KEY if versions[1] > versions[0] else None]
    assert store.child(KEY, "Pod", "demo-sampler-0")["metadata"]["resourceVersion"] == str(stays)


def test_an_answer_that_was_under_way_does_not_bring_back_what_is_deleted() -> None:
    now = [0.0]
    store = Store(lambda: now[0])
    store.remove("Pod", pod(5, uid="a"))
    assert store.put("Pod", pod(4, uid="a")) is None
    ended = pod(5, uid="a")
    ended["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert store.put("Pod", ended) is None
    assert store.children(KEY) == []
    assert store.put("Pod", pod(6, uid="b")) == KEY, "another of the same name is another"
    assert store.put("Pod", pod(11, uid="a")) == KEY, "it had only lost the label that the watch selects by"
    store.remove("Pod", pod(20, uid="a"))
    now[0] = TOMBSTONE_SECONDS + 1
    store.remove("Pod", pod(21, uid="c"))
    assert store.put("Pod", pod(19, uid="a")) == KEY, "old graves are cleared"


def test_a_pod_keeps_the_hash_of_its_template_and_no_other_annotation() -> None:
    store = Store()
    of_template = {ANNOTATION_TEMPLATE: "1d4c63a211"}
    found = pod(3)
    found["metadata"]["annotations"] = of_template | {"team": "x" * 1000}
    store.put("Pod", found)
    assert store.child(KEY, "Pod", "demo-sampler-0")["metadata"]["annotations"] == of_template


def test_a_pod_whose_labels_are_taken_away_is_still_its_jobs() -> None:
    store = Store()
    owned = pod(3)
    owned["metadata"]["ownerReferences"] = [{"kind": KIND, "name": "demo", "uid": "j", "controller": True}]
    store.put("Pod", owned)
    bare = pod(4, phase="Failed")
    bare["metadata"] |= {"labels": {}, "ownerReferences": owned["metadata"]["ownerReferences"]}
    assert store.put("Pod", bare) == KEY
    assert store.child(KEY, "Pod", "demo-sampler-0")["status"]["phase"] == "Failed"
    assert store.remove("Pod", bare) == KEY
    assert store.children(KEY) == []


def test_the_end_of_an_earlier_one_does_not_take_the_one_that_is_there() -> None:
    store = Store()
    store.put("Pod", pod(6, uid="b"))
    assert store.remove("Pod", pod(7, uid="a")) is None
    assert store.child(KEY, "Pod", "demo-sampler-0") is not None


def test_what_a_list_does_not_show_is_gone_unless_it_is_newer_than_the_list() -> None:
    store = Store()
    store.put("Pod", pod(6, uid="b"))
    assert list(store.missing("Pod", [], "5")) == [], "made after the list"
    assert list(store.missing("Pod", ["b"], "7")) == [], "seen"
    assert list(store.missing("Pod", [], "7", namespace="other")) == [], "of another namespace"
    assert [gone["metadata"]["uid"] for gone in store.missing("Pod", [], "7")] == ["b"]


def test_jobs_and_children_are_found_by_key() -> None:
    store = Store()
    assert store.put(KIND, job(3)) == KEY
    service = {"metadata": {**job(4, "s")["metadata"], "labels": job_labels("demo")}}
    assert store.put("Service", service) == KEY
    assert store.child(KEY, "Service", "demo")["kind"] == "Service", "items of lists come without a kind"
    stranger = {"metadata": job(5, "x")["metadata"]}
    assert store.put("Service", stranger) is None, "bears no job's label"
    store.remove(KIND, job(9))
    assert store.job(KEY) is None
    assert len(store.children(KEY)) == 1, "garbage collection takes the children; the watch will tell"


def test_pod_groups_of_jobs_that_are_gone_are_not_kept() -> None:
    """No watch reports their deletion, so an operator that runs for months would keep them all."""
    store = Store()
    store.put(KIND, job(1))
    group = pod(2)
    group["metadata"]["name"] = "demo"
    store.put("PodGroup", group)
    store.put("Pod", pod(3))
    store.remove(KIND, job(4))
    assert [child["kind"] for child in store.children(KEY)] == ["Pod"]


def test_the_end_of_what_was_forgotten_is_news() -> None:
    """The operator found the object gone at its own deletion, so only the watch triggers the next pass."""
    store = Store()
    store.put("Pod", pod(1))
    store.forget(KEY, "Pod", "demo-sampler-0")
    assert store.remove("Pod", pod(2)) == KEY
