"""Workers on several machines: membership, collectives, gradient exchange, load balance and synchronisation."""
