"""Meaning of a run's events: answers, diagnoses, forecasts, the report and the live page."""
