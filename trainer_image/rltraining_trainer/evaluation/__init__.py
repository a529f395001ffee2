"""Evaluation during training: a child process of the first learner plays the latest policy.

A separate process keeps evaluations from delaying updates. A separate pod is not needed, because
the learner's image contains the environment, and would be one more kind of pod to manage.
`evaluator` is the learner's side, `process` the child process and `messages` their protocol.
"""
