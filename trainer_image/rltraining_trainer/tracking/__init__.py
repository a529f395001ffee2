"""Sends the curves of a run to Weights & Biases and MLflow.

Each tracker's package runs in a separate child process of the first learner. An import, a slow
server, a hang or a crash there cannot delay or end the training.
"""
