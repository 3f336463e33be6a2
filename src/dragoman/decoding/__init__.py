"""Translation with trained models: beam search, text in and out, scores."""
