"""Ours beside other packages: ``python -m benchmarks.peers``; settings in ``__main__.py``."""
