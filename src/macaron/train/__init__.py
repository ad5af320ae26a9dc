"""The training loop: optimiser and schedule, checkpoints, distribution, logging."""
