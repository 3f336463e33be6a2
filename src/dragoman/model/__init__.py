"""The Transformer on packed tokens, its loss, and its key-value cache for decoding."""
