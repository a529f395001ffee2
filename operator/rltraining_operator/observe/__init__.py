"""What a pass knows: a job, its pods and other children, and the answers to its requests."""
