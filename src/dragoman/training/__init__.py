"""The exact distributed training of a model, and its checkpoints."""
