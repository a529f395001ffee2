"""Sweeps: one manifest with several values of some fields and several seeds."""
