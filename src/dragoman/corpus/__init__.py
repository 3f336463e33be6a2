"""Parallel text: read, cleaned, tokenized and written as memory-mapped shards."""
