"""The operator in a cluster: kopf watches jobs, the engine plans, and `KubernetesCluster` acts.

`main.py` is the entry point. Read `cluster.py` next.
"""
