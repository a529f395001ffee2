"""The two programs: ``learner`` and ``sampler``. Read learner.py and sampler.py top to bottom and you know the system."""
