"""Triton kernels, and the conditions under which they run."""
