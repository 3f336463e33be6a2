"""Starting workers: on this machine, over ssh on others, or as schedulers have started them."""

RESTARTS = 3
"""How often lost workers are started again, from the last checkpoint."""
