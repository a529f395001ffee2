"""Every CEL rule of the CRD that judges a job by itself: one job accepted, one refused, by the API server and by the
models."""

from __future__ import annotations

from collections import Counter

from rules import RuleCase, cases, rules
from verdicts import Complaints, Server, but_for_the_whole, is_of_a_whole, of_the_models

CASES = list(cases())


def test_no_rule_is_without_a_case() -> None:
    needed = Counter(rules())
    found = {rule: sum(_tries(case, rule) for case in CASES) for rule in needed}
    short = {rule: count for rule, count in needed.items() if found[rule] < count}
    assert not short, f"add a case to rules.py for: {short}"


def test_rules_accept_what_obeys_them(server: Server) -> None:
    good = [case.good for case in CASES]
    for case, found in zip(CASES, server.judge(good), strict=True):
        assert not but_for_the_whole(found), f"{case.where}: {case.message}"
        assert not but_for_the_whole(of_the_models(case.good)), f"{case.where}: {case.message}"


def test_rules_refuse_what_breaks_them_and_say_why(server: Server) -> None:
    bad = [case.bad for case in CASES]
    for case, found in zip(CASES, server.judge(bad), strict=True):
        (sentence,) = {message for where, message in rules() if _tries(case, (where, message))}
        ours = _about(case, found)
        assert [each.message.removeprefix('Invalid value: "object": ') for each in ours] == [sentence]
        assert case.where in ("", ours[0].field)
        assert of_the_models(case.bad), f"rltrain accepts what breaks: {sentence}"


def _tries(case: RuleCase, rule: tuple[str, str]) -> bool:
    return rule[0] == case.where and rule[1].startswith(case.message)


def _about(case: RuleCase, found: Complaints) -> Complaints:
    return found if is_of_a_whole(case.message) else but_for_the_whole(found)
