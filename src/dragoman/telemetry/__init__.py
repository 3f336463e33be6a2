"""What happened in a run, measured."""
