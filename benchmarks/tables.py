"""Tables as the reports of benchmarks show them."""

from __future__ import annotations

import pandas as pd


def as_markdown(table: pd.DataFrame) -> str:
    """A table of numbers in markdown, three digits each, its index in front; no last line break."""
    lines = ["| | " + " | ".join(table.columns) + " |", "|" + " --- |" * (table.shape[1] + 1)]
    for name, row in table.iterrows():
        lines.append(f"| {name} | " + " | ".join(f"{v:.3g}" for v in row) + " |")
    return "\n".join(lines)
