"""Measurements of a run while it trains: step timing, sensors, and the views of its events."""
