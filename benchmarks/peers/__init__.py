"""Ours beside other packages: ``python -m benchmarks.peers``."""
