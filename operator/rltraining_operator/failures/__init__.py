"""Classifies failures of pods, and counts each exactly once."""
