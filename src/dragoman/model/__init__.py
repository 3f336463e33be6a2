"""The Transformer on packed tokens, and its loss."""
