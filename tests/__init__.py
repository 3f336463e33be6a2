"""Tests mirror the package; this is imported before any of them."""

import os

# The models of the tests are so small that a second thread costs more than it brings. Set before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
