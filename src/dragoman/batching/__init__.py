"""Which pairs make which batch, and whose share each is."""
