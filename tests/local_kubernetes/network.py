"""Addresses of the one node: a separate bridge, which all parts and pods can reach."""

from __future__ import annotations

SERVICES = "10.96.0.0/16"
API_SERVICE = "10.96.0.1"
"""The Service `kubernetes`: the first address of SERVICES."""

PODS = "10.244.0.0/24"
NODE_ADDRESS = "10.244.0.1"
"""The bridge's address, at which pods reach the node, the API server and CoreDNS."""

BRIDGE = "rlt0"
NAME = "rltraining-test"
"""The name of the CNI network, and of the node's control group."""

NODE = "test-node"
DOMAIN = "cluster.local"
