"""Checks whether a learner's reported URI is where its job writes."""

from __future__ import annotations

import pytest
from rltraining_api.stores import is_below


@pytest.mark.parametrize(
    ("uri", "store"),
    [
        ("s3://bucket/jobs/a/policy", "s3a://bucket/jobs/a"),
        ("gs://bucket//a/policy", "gcs://bucket/a/"),
        ("abfs://jobs/a/policy", "abfss://jobs@account.dfs.core.windows.net/a"),
        ("file:///output/policy", "file://"),
        ("file:///my runs/100%/policy", "file:///my runs/100%"),
        ("memory:///x/a/policy", "memory://x/a"),
        ("hdfs:///jobs/a/policy", "hdfs://namenode:8020/jobs/a"),
        ("hdfs://namenode:8020/jobs/a/policy", "hdfs://namenode:8020/jobs/a"),
    ],
)
def test_below(uri: str, store: str) -> None:
    assert is_below(uri, store)


@pytest.mark.parametrize(
    ("uri", "store"),
    [
        ("s3://jobs/a/policy", "s3://bucket/jobs/a"),
        ("s3://bucket/jobs/ab/policy", "s3://bucket/jobs/a"),
        ("s3://bucket/jobs/a/../b", "s3://bucket/jobs/a"),
        ("s3://bucket/jobs/a?x=1", "s3://bucket/jobs/a"),
        ("s3://bucket/jobs/a/\x1b[2J", "s3://bucket/jobs/a"),
        ("zip://x::s3://bucket/jobs/a", "s3://bucket/jobs/a"),
        ("file:///etc", "file:///output"),
        ("file:///output/../etc", "file:///output"),
        ("local:///output", "file://"),
        ("/output/policy", "file://"),
        ("", "file://"),
        ("hdfs:///other/policy", "hdfs://namenode:8020/jobs/a"),
    ],
)
def test_elsewhere(uri: str, store: str) -> None:
    assert not is_below(uri, store)


def test_another_account_s_container_of_the_same_name_is_another_store() -> None:
    store = "abfss://runs@ours.dfs.core.windows.net/job"

    assert is_below("abfs://runs@ours.dfs.core.windows.net/job/policy", store)
    assert is_below("abfs://runs/job/policy", store)
    assert not is_below("abfs://runs@theirs.dfs.core.windows.net/job/policy", store)
