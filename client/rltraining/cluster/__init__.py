"""The commands on a cluster. `cli.py` defines them, and each of the other modules implements
one."""
