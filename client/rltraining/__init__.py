"""For people: the `rltrain` command."""
