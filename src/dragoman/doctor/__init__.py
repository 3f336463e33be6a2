"""Benchmarks machines and links before a run, and estimates its time, cost and limits."""
