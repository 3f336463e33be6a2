"""Benchmark machines and links before a run, and estimate its time, cost and limits."""
