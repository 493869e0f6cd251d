"""The evidence behind anybody's draws."""
