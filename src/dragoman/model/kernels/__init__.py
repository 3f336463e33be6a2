"""Triton kernels, and the conditions under which they can run."""
