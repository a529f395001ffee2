"""The algorithms. Each module defines what its samplers send, and how its learners update."""
