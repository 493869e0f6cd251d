"""Pictures: tables and arrays in, axes out; matplotlib is imported when one is drawn."""

from .components import plot_averaged, plot_components
from .evidences import plot_evidence, plot_jumps, plot_pareto
from .graphs import plot_edges, plot_graph
from .models import plot_inclusion, plot_models, plot_running
from .samplers import plot_comparison
from .training import plot_fit

__all__ = [
    "plot_averaged",
    "plot_comparison",
    "plot_components",
    "plot_edges",
    "plot_evidence",
    "plot_fit",
    "plot_graph",
    "plot_inclusion",
    "plot_jumps",
    "plot_models",
    "plot_pareto",
    "plot_running",
]
