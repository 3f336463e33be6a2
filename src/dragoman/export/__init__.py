"""Trained models in other libraries' formats, each with a model card."""
