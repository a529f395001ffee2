"""Logs: every record is one line, whichever library wrote the record."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import kopf
import pytest
from kopf._core.actions.loggers import ObjectLogger
from rltraining_operator.kube.config import LogConfig
from rltraining_operator.kube.handlers import build_settings
from rltraining_operator.kube.logs import NOISY, set_up_logging


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    levels = {name: logging.getLogger(name).level for name in NOISY}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, its in levels.items():
        logging.getLogger(name).setLevel(its)


def test_what_kopf_says_of_an_object_is_one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging(LogConfig(level="debug", format="json"))
    metadata = {"name": "cartpole", "namespace": "team", "uid": "u"}
    logger = ObjectLogger(body=kopf.Body({"metadata": metadata}), settings=build_settings())
    logger.warning("seen")
    [line] = capsys.readouterr().err.splitlines()
    record = json.loads(line)
    assert (record["level"], record["message"]) == ("WARNING", "seen")
    assert record["k8s_ref"]["name"] == "cartpole"
