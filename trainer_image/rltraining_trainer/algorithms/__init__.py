"""What a sampler makes of its steps and what a learner does with the result: one module an algorithm."""
