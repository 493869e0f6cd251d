"""Samplers side by side on one target."""
