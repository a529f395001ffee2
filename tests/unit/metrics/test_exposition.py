"""The metrics for Prometheus: names follow the field's conventions, values equal the curves."""

from __future__ import annotations

import math
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families
from rltraining_trainer.metrics.exposition import INFO, LOSS, METRICS, exposition

KNOWN = [INFO, LOSS, *METRICS.values()]


def told(numbers: Mapping[str, float | None]) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Returns the samples by name and labels, as Prometheus reads them."""
    text = exposition({"role": "learner"}, lambda: numbers)().decode()
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for sample in (sample for family in text_string_to_metric_families(text) for sample in family.samples):
        found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_numbers_are_told_by_their_metrics_name_and_labels() -> None:
    found = told({"environmentSteps": 7, "unrolls/queued": 2, "gradients/queued": 3, "meanReturn": -1.5})
    assert found["rltraining_learner_environment_steps_total"] == {(): 7}
    assert found["rltraining_learner_mean_return"] == {(): -1.5}
    assert found["rltraining_dataflow_queued"] == {(("item", "gradients"),): 3, (("item", "unrolls"),): 2}


def test_every_term_of_the_loss_is_told() -> None:
    found = told({"loss/policy": 0.5, 'loss/of "mine"\n': math.nan})[LOSS.name]
    assert found[(("term", "policy"),)] == 0.5
    assert math.isnan(found[(("term", 'of "mine"\n'),)])


def test_what_is_not_known_yet_and_what_no_metric_is_made_of_are_left_out() -> None:
    ours = {name for name in told({"meanReturn": None, "time": 1.0}) if name.startswith("rltraining")}
    assert ours == {INFO.name}


def test_a_scrape_says_what_the_member_is_and_what_it_needs() -> None:
    found = told({})
    assert found[INFO.name] == {(("role", "learner"),): 1}
    assert found["process_resident_memory_bytes"][()] > 0
    assert found["process_cpu_seconds_total"][()] > 0


def test_each_number_has_a_metric_and_labels_of_its_own() -> None:
    places = [(known.name, *sorted(known.labels.items())) for known in KNOWN]
    assert len(set(places)) == len(places)


def test_metrics_of_one_name_are_of_one_kind_and_have_the_same_labels() -> None:
    found = {(known.name, known.kind, *sorted(known.labels)) for known in KNOWN}
    assert len(found) == len({known.name for known in KNOWN})
