"""Derives from a job's spec where the job writes, and checks whether a URI that its learner reports is in that
place."""

from __future__ import annotations

from rltraining_api.job import RLTrainingJob

_SAME = {"s3a": "s3", "gcs": "gs", "az": "abfs", "abfss": "abfs"}
"""Aliases of schemes, with the name that fsspec returns for each."""
OBJECT_STORES = ("s3", "gs", "abfs", "oss")
"""Schemes of stores that every machine can reach, and that cannot refer to resources of the reading machine."""
IN_THE_POD = "file://"


def store_of(job: RLTrainingJob) -> str:
    """Returns the URI of the folder below which the learner writes; without `checkpoint.uri` it is in the learner's
    pod."""
    uri = job.spec.checkpoint.uri
    return f"{uri.rstrip('/')}/{job.metadata.name}" if uri else IN_THE_POD


def policy_of(job: RLTrainingJob) -> str | None:
    """Returns the URI of the policy for readers on other machines, or None if they cannot reach the job's store. It is
    derived from the spec alone, because the URI in the status comes from a pod."""
    store = store_of(job)
    return f"{store}/policy" if scheme_of(store) in OBJECT_STORES else None


def is_below(uri: str, store: str) -> bool:
    """Checks whether a URI is within a store, under any alias of the scheme. Chained URIs (`::`) and `..` never are."""
    found, wanted = _parts(uri), _parts(store)
    if _account(uri) not in ("", _account(store)):  # drivers may leave it out, but name no other
        return False
    if not found or not wanted or found[0] != wanted[0]:
        return False
    if found[: len(wanted)] == wanted:
        return True
    # Drivers of other stores, such as hdfs and sftp, omit the host from the URIs that they return.
    return found[0] not in (*OBJECT_STORES, "file") and found[1 : len(wanted) - 1] == wanted[2:]


def scheme_of(uri: str) -> str:
    """Returns the scheme under the name that fsspec uses."""
    scheme = uri.partition("://")[0]
    return _SAME.get(scheme, scheme)


def _account(uri: str) -> str:
    """`account.dfs.core.windows.net` of `abfss://container@account.dfs.core.windows.net/path`."""
    if scheme_of(uri) == "file":
        return ""
    return uri.partition("://")[2].partition("/")[0].partition("@")[2]


def _parts(uri: str) -> tuple[str, ...]:
    """Splits a URI into scheme, bucket or host, and folders. Returns () if its driver could interpret it
    differently."""
    _, separator, rest = uri.partition("://")
    scheme, names = scheme_of(uri), [name for name in rest.split("/") if name]
    is_clear = scheme == "file" or (uri.isprintable() and set("?#\\% ").isdisjoint(rest))
    if not separator or "::" in uri or "://" in rest or not is_clear or not {".", ".."}.isdisjoint(names):
        return ()
    if names and scheme != "file":
        names[0] = names[0].partition("@")[0]  # abfss://container@account.dfs.core.windows.net/path
    return (scheme, *names)
