"""Results in files."""

from __future__ import annotations

FORMAT = 3  # of saved files; 2, of version 0.9.0, had no checksum and was not compressed
