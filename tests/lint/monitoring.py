"""Alerts, dashboard and the page on metrics name metrics and labels that exist. Integration tests run the queries."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from tests.docs_pages import ROOT, pages
from tests.exported_metrics import of_a_process, of_members, of_the_operator
from tests.lint.problem import Problem, line_of
from tests.unit.charts.chart_files import CHART, alerts, dashboard, panels

PAGE, ALERTS, DASHBOARD = "docs/metrics.md", CHART / "files/alerts.yaml", CHART / "files/dashboard.json"
MEMBERS = of_members()
EXPORTED = MEMBERS | of_a_process() | of_the_operator()
LABELS = {sample: one.labels | {"le"} for one in EXPORTED.values() for sample in one.samples} | {"up": set()}
"""Labels of each metric, by the name that queries use."""
TARGET_LABELS = {"job", "namespace", "pod", "instance", "training_job"}
"""Labels that Prometheus adds to each metric. Only members' metrics get `training_job`."""
OF_A_RUN = 'namespace=~"$namespace",training_job="$run"'
SELECTOR = re.compile(r"\b((?:rltraining|process)_\w+|up\b)(?:\{([^}]*)\})?")


def wrong_rows() -> Iterator[Problem]:
    """Finds rows of the page without a metric, and metrics without a row."""
    text, wanted = pages()[PAGE], set()
    for name, one in EXPORTED.items():
        cells = [f"`{name}`", one.kind, ", ".join(f"`{label}`" for label in sorted(one.labels)), one.help]
        cells += [", ".join(f"`{curve}`" for curve in one.curves)] if one.curves else []
        wanted.add(f"| {' | '.join(cells)} |")
    found = {line for line in text.splitlines() if line.startswith(("| `rltraining_", "| `process_"))}
    for line in sorted(found ^ wanted):
        what = "no metric has this row: correct it" if line in found else "a metric has no row: add it"
        yield Problem(PAGE, line_of(text, line), f"{what}: {line}")


def wrong_alerts() -> Iterator[Problem]:
    """Finds alerts with a wrong query, or with a text that names a label which the query drops."""
    text, file = ALERTS.read_text(), str(ALERTS.relative_to(ROOT))
    for rule in alerts():
        named = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
        errors = list(query_errors(rule["expr"], drawn=False))
        if dropped := named - _labels(r"by \(([^)]*)\)", rule["expr"]):
            errors.append(f"its texts name {sorted(dropped)}: group by these labels")
        for error in errors:
            yield Problem(file, line_of(text, f"alert: {rule['alert']}\n"), f"{rule['alert']}: {error}")


def wrong_panels() -> Iterator[Problem]:
    """Finds panels with a wrong query or a fixed data source, variables that do not exist, and metrics without a panel."""
    text, file = DASHBOARD.read_text(), str(DASHBOARD.relative_to(ROOT))
    defined = {variable["name"] for variable in dashboard()["templating"]["list"]} | {"__rate_interval"}
    for panel in panels():
        errors = [error for asked in panel["targets"] for error in query_errors(asked["expr"], drawn=True)]
        if any(asks["datasource"]["uid"] != "${datasource}" for asks in (panel, *panel["targets"])):
            errors.append("it queries a fixed data source: use ${datasource}")
        errors += [f"define ${name}" for name in set(re.findall(r"\$\{?(\w+)", str(panel))) - defined]
        for error in errors:
            yield Problem(file, line_of(text, json.dumps(panel["title"])), f"{panel['title']}: {error}")
    for name, one in EXPORTED.items():
        if name.startswith("rltraining") and not any(
            each in text + ALERTS.read_text() for each in one.samples
        ):
            yield Problem(file, 1, f"neither a panel nor an alert queries {name}: add one")


def query_errors(query: str, *, drawn: bool) -> Iterator[str]:
    """Checks the metrics and labels of the query of a panel, if `drawn`, or of an alert."""
    selectors = SELECTOR.findall(query)
    known = TARGET_LABELS.union(*(LABELS.get(name, ()) for name, _ in selectors))
    if unknown := _labels(r"\b(?:by|on)\s*\(([^)]*)\)", query) - known:
        yield f"no metric in it has the labels {sorted(unknown)}, by which it groups: correct them"
    for name, matchers in selectors:
        if name not in LABELS:
            yield f"no program exports {name}: choose one of {PAGE}"
            continue
        if unknown := set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers)) - LABELS[name] - TARGET_LABELS:
            yield f"{name} has no label {sorted(unknown)}: correct it"
        if name in MEMBERS:
            if drawn and not matchers.startswith(OF_A_RUN):
                yield f"{name} is not of one run alone: add {OF_A_RUN}"
        elif not (drawn and name.startswith("process_") and matchers == OF_A_RUN):
            selector = 'job="$job"' if drawn else 'job="rltraining-operator"'
            if selector not in matchers.split(","):
                yield f"{name} is not of this operator alone: add {selector}"
    for matchers in re.findall(r"sum[^{]*rltraining_dataflow_\w+\{([^}]*)\}", query):
        if 'item="unrolls"' not in matchers:
            yield "each learner counts every gradient: take the maximum over learners, not the sum"


def _labels(pattern: str, query: str) -> set[str]:
    return {label.strip() for group in re.findall(pattern, query) for label in group.split(",")}


CHECKS = (wrong_rows, wrong_alerts, wrong_panels)
