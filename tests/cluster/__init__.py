"""A real Kubernetes from nothing, for the tests: see README.md.

``python -m tests.cluster up`` brings it up, :func:`tests.cluster.api.up` does so from a test.
"""
