"""Training: the loop, the optimizer and schedule, evaluation, early stopping, checkpoints and the step log."""
