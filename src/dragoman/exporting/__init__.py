"""Export of trained models to the formats of other libraries, with a model card."""
