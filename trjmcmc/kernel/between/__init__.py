"""Jumps between models."""
