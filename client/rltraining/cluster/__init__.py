"""The commands on a cluster. `cli.py` wires them; each of the others is what one of them does."""
