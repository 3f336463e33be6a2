"""From a model to people: a server and its page."""
