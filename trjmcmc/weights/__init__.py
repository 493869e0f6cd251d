"""Distributions over models that are learned beside a map: q(m)."""
