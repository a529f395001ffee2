"""The Python SDK: jobs in a cluster, over the official Kubernetes client.

`client.py` is what users see. Below it: `jobs.py` (raw objects), `watching.py` (a watch that survives), `waiting.py`,
`pod_logs.py`, and `api.py`, the only module that speaks HTTP. Errors are in `errors.py`.
"""
