"""What the events of a run mean, in words: how long, how good, how fast, and what limits it. It never steers."""
