"""Translation of large texts into synthetic corpora, on any number of machines: every line exactly once."""
