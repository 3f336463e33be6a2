"""One file a command: its arguments, the calls it makes, and its output. Imports are lazy, so that --help is fast."""
