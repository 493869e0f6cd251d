"""Claims of the README as scripts: ``python -m benchmarks``."""
