"""Claims of the README and of docs/ as scripts: ``python -m benchmarks``."""
