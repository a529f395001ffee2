"""The operator in a cluster: kopf watches, the engine decides, `KubernetesCluster` does.

`main.py` starts it all; read `cluster.py` next.
"""
