"""Runs on disk: folders that are whole at every moment, and what may be read from them."""
