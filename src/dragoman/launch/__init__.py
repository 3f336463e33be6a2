"""Start workers: on this machine, on other machines over ssh, or in a world that a scheduler has made."""

RESTARTS = 3
"""How often lost workers are restarted from the last checkpoint."""
