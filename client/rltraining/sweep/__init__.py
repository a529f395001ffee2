"""Sweeps: one manifest, several values of some fields, several seeds."""
