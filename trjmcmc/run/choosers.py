"""Which way of choosing the kernel of a run its target asks for."""

from __future__ import annotations

from ..target.exchangeable import components_of
from ..target.target import Target
from .choose import Chooser
from .choose_components import ComponentChooser
from .choose_equations import EquationChooser
from .choose_graphs import GraphChooser
from .policy import Policy


def counts_components(target: Target) -> bool:
    """Whether numbers of exchangeable components are what the models differ in."""
    return bool(components_of(target)) and target.space.several


def chooser_of(target: Target, policy: Policy) -> type[Chooser]:
    """By components, by equations of graphs, by local scores of graphs, or by measurement alone."""
    if counts_components(target):
        return ComponentChooser
    if EquationChooser.fits(target, policy):
        return EquationChooser
    return GraphChooser if target.space.graphs and target.scores is not None else Chooser
