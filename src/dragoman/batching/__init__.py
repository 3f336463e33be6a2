"""Batches: the plan of an epoch, packed tensors, and the data loader of each worker."""
