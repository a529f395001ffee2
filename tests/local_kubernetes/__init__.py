"""A Kubernetes compiled from Go modules, for machines without Docker or kind. See README.md."""
