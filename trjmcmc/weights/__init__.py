"""Distributions over models that are learnt beside a map: q(m)."""
