"""Moves among graphs whose likelihood is a sum of local scores."""
