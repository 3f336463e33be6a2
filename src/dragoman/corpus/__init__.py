"""Text to cleaned, tokenized, memory-mapped shards."""
