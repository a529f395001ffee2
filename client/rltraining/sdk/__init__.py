"""The Python SDK: jobs in a cluster, with the official Kubernetes client.

`client.py` is the public interface. It is built on `jobs.py` (raw objects), `watching.py` (a watch
that recovers), `waiting.py`, `pod_logs.py`, and `api.py`, the only module that uses HTTP. Errors
are in `errors.py`.
"""
