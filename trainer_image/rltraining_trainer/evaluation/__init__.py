"""Evaluation while training goes on: a process beside the first learner plays the newest policy.

It is a process, since an evaluation must not hold up updates, and not a pod: the learner's image has the environment, the
policy need not leave the machine, and the operator has one kind of pod fewer to keep alive.
`evaluator` is the learner's side, `process` the other, `messages` is what they exchange.
"""
