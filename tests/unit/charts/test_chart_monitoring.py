"""Alerts and the dashboard speak of metrics that exist, with the labels they have. They are run in tests/integration."""

from __future__ import annotations

import itertools
import re

import pytest
from chart_files import alerts, dashboard, panels, queries
from exported_metrics import of_a_process, of_members, of_the_operator

HISTOGRAM = ("_bucket", "_sum", "_count")

EXPORTED = of_the_operator() | of_members() | of_a_process()
METRICS = {sample: one.labels | {"le"} for one in EXPORTED.values() for sample in one.samples} | {"up": set()}
TARGET_LABELS = {"job", "namespace", "pod", "instance", "training_job"}
"""What Prometheus adds to each: `training_job` to those of members."""
OF_A_RUN = 'namespace=~"$namespace",training_job="$run"'

QUERIES = queries()


@pytest.mark.parametrize(("where", "query"), QUERIES, ids=[where for where, _ in QUERIES])
def test_gradients_are_counted_once_though_each_holder_gets_a_slice_of_all(where: str, query: str) -> None:
    for matchers in re.findall(r"sum[^{]*rltraining_dataflow_\w+\{([^}]*)\}", query):
        assert 'item="unrolls"' in matchers, f"{where}: of gradients take the maximum over learners"


@pytest.mark.parametrize(("where", "query"), QUERIES, ids=[where for where, _ in QUERIES])
def test_queries_use_known_metrics_and_labels(where: str, query: str) -> None:
    names = set(re.findall(r"\b(?:rltraining|process)_\w+|\bup\b", query))
    assert names, f"{where} asks for no metric"
    assert names <= set(METRICS), f"{where}: nobody exports {sorted(names - set(METRICS))}"
    for name, matchers in re.findall(r"([a-z_]+)\{([^}]*)\}", query):
        used = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
        assert used <= METRICS[name] | TARGET_LABELS, f"{where}: {name} has no label {used - METRICS[name]}"
    known = set().union(*(METRICS[name] for name in names)) | TARGET_LABELS
    for group in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", query):
        used = {label.strip() for label in group.split(",")}
        assert used <= known, f"{where}: groups by {sorted(used - known)}, which no metric in it has"


@pytest.mark.parametrize(("where", "query"), QUERIES, ids=[where for where, _ in QUERIES])
def test_queries_are_of_this_operator_or_of_one_run_alone(where: str, query: str) -> None:
    drawn = where.startswith("panel")
    for name, matchers in re.findall(r"\b((?:rltraining|process)_\w+|up\b)(?:\{([^}]*)\})?", query):
        if name in of_members():
            assert not drawn or matchers.startswith(OF_A_RUN), f"{where}: {name} needs {OF_A_RUN}"
        elif not (drawn and name.startswith("process_") and matchers == OF_A_RUN):
            selector = 'job="$job"' if drawn else 'job="rltraining-operator"'
            assert selector in matchers.split(","), f"{where}: {name} needs {selector}"


@pytest.mark.parametrize(("where", "query"), QUERIES, ids=[where for where, _ in QUERIES])
def test_parentheses_close(where: str, query: str) -> None:
    for left, right in ("()", "{}", "[]"):
        assert query.count(left) == query.count(right), where


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_an_alert_says_how_bad_it_is_and_what_to_do(rule: dict) -> None:
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert rule["annotations"]["summary"].endswith(".")
    assert rule["annotations"]["description"].endswith(".")
    labels = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
    grouped = {
        label.strip() for group in re.findall(r"by \(([^)]*)\)", rule["expr"]) for label in group.split(",")
    }
    assert labels <= grouped, f"{rule['alert']} tells {labels}, and keeps only {grouped}"


def test_alert_names_are_unique() -> None:
    names = [rule["alert"] for rule in alerts()]
    assert len(set(names)) == len(names)


def test_panels_have_a_title_a_description_and_a_place_of_their_own() -> None:
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in panels():
        assert panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24, panel["title"]
    for one, other in itertools.combinations(dashboard()["panels"], 2):
        assert not _overlap(one["gridPos"], other["gridPos"]), f"{one['title']} lies on {other['title']}"


def test_panels_ask_the_data_source_that_was_chosen_each_query_by_a_letter_of_its_own() -> None:
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    for panel in panels():
        letters = [target["refId"] for target in panel["targets"]]
        assert letters == sorted(set(letters)), panel["title"]
        assert panel["type"] in {"stat", "timeseries"}
        assert all(asks["datasource"] == chosen for asks in (panel, *panel["targets"])), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]


def test_every_metric_is_looked_at_somewhere() -> None:
    asked = " ".join(query for _, query in QUERIES)
    ours = {name for name in METRICS if name.startswith("rltraining") and not name.endswith(HISTOGRAM)}
    unseen = {name for name in ours if name not in asked}
    assert not unseen


def test_variables_are_defined() -> None:
    defined = {variable["name"] for variable in dashboard()["templating"]["list"]} | {"__rate_interval"}
    used = set(re.findall(r"\$\{?(\w+)", str(dashboard()["panels"])))
    assert used == defined


def _overlap(one: dict, other: dict) -> bool:
    def apart(start: str, size: str) -> bool:
        return one[start] + one[size] <= other[start] or other[start] + other[size] <= one[start]

    return not (apart("x", "w") or apart("y", "h"))
