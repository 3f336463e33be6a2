"""HTTP translation server: the API and the translate page."""
