"""Documents of all formats: their texts with inline markup, and the same documents with translated texts."""
