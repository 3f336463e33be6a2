"""Start workers: on this machine, on other machines over ssh, or in a world that a scheduler has made."""

RESTARTS = 3
"""How often lost workers are restarted from the last checkpoint."""
NOTICE_S = 5.0
"""After a failure, time for the other workers to notice it and exit, and for the failed one to report its error."""
