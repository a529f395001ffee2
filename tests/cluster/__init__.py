"""Tests against a real Kubernetes. See README.md."""
