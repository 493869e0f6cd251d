"""Which model next: proposals q(k' | k)."""
