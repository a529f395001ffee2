"""Decides which pods a job should have, and builds them and the other children."""
