"""Where a job writes, by its spec, and whether a URI that its learner reports is there."""

from __future__ import annotations

from rltraining_api.job import RLTrainingJob

_SAME = {"s3a": "s3", "gcs": "gs", "az": "abfs", "abfss": "abfs"}
"""Schemes with the name that fsspec gives back for them."""
OBJECT_STORES = ("s3", "gs", "abfs", "oss")
"""Schemes of stores that are reached from everywhere, and that name nothing on the machine that reads."""
IN_THE_POD = "file://"


def store_of(job: RLTrainingJob) -> str:
    """The folder, as a URI, below which the learner writes; without `checkpoint.uri` it is in the learner's pod."""
    uri = job.spec.checkpoint.uri
    return f"{uri.rstrip('/')}/{job.metadata.name}" if uri else IN_THE_POD


def policy_of(job: RLTrainingJob) -> str | None:
    """Where the policy is read from other machines, by the spec alone: what the status says was written by a pod. None
    where the job's store is not one that other machines reach."""
    store = store_of(job)
    return f"{store}/policy" if scheme_of(store) in OBJECT_STORES else None


def is_below(uri: str, store: str) -> bool:
    """Whether a URI is within a store, whichever of its names the scheme has. URIs in URIs (`::`) and `..` never are."""
    found, wanted = _parts(uri), _parts(store)
    if not found or not wanted or found[0] != wanted[0]:
        return False
    if found[: len(wanted)] == wanted:
        return True
    # Drivers of other stores, such as hdfs and sftp, leave the host out of what they give back.
    return found[0] not in (*OBJECT_STORES, "file") and found[1 : len(wanted) - 1] == wanted[2:]


def scheme_of(uri: str) -> str:
    """The scheme, by the name that fsspec gives back."""
    scheme = uri.partition("://")[0]
    return _SAME.get(scheme, scheme)


def _parts(uri: str) -> tuple[str, ...]:
    """Scheme, bucket or host, and the folders; empty of a URI that could mean something else to its driver."""
    _, separator, rest = uri.partition("://")
    scheme, names = scheme_of(uri), [name for name in rest.split("/") if name]
    is_clear = scheme == "file" or (uri.isprintable() and set("?#\\% ").isdisjoint(rest))
    if not separator or "::" in uri or "://" in rest or not is_clear or not {".", ".."}.isdisjoint(names):
        return ()
    if names and scheme != "file":
        names[0] = names[0].partition("@")[0]  # abfss://container@account.dfs.core.windows.net/path
    return (scheme, *names)
