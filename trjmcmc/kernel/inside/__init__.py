"""Moves inside a model."""
