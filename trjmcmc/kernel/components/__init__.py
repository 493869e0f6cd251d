"""Moves where components are counted."""
