"""Numbers by which runs over graphs are planned."""

from __future__ import annotations

from dataclasses import dataclass

from ..checks import Checked


@dataclass(frozen=True)
class GraphPolicy(Checked):
    """How graphs are moved among, and how equations with parameters are learned.

    The latter go one family, a node with its parents, at a time.

    Attributes:
        block_size: Nodes that get new parents together; twenty nodes, 60 s, largest error .29 with
            6, .048 with 8, .024 with 10, .031 with 11.
        layer_share: Of the nodes, those that move between layers for each block; without layers
            errors are twice as large where there are hardly any edges.
        reversals: Edges turned around with new parents, beside one new parent set;
            Sachs's 853 rows, 256 chains, 6 s: largest errors .007 and .008 by these alone.
        most_families: Most families whose normals are found by Newton steps.
        most_tempered: Most of them that are found by tempering.
        least_effective: Effective share of draws of the median family from which normals at modes
            will do.
        nearly_exact: Effective share from which whole graphs are proposed alone.
        check_draws: Draws of each family by which that is judged.
        particles: Of tempering, a family and replicate.
        replicates: Independent ones a family.
        moves: Of each particle at each temperature.
        doubted_share: Of the chains, that start in a family whose tempered runs contradict each
            other, from which there is a warning.
        components: Normals in the mixture of a family.
        widening: Of these normals: of networks with three hidden units, one draw in a hundred had
            400 times the mean weight without, 50 times with it.
        fitted_draws: Draws of tempering that they are fitted to.
        first_steps: Steps by evidences alone, from draws of the prior over graphs to first ones.
        effective_tries: Draws that a jump tries, times their effective share.
        most_tries: Most of them.
        walks: Walks of all parameters, a step.
        draws_a_step: Draws that all chains try for all nodes, by which fewer chains are made.
    """

    block_size: int = 9
    layer_share: float = 0.33
    reversals: int = 4
    most_families: int = 6000
    most_tempered: int = 200
    least_effective: float = 0.3
    nearly_exact: float = 0.9
    check_draws: int = 256
    particles: int = 500
    replicates: int = 2
    moves: int = 30
    doubted_share: float = 0.05
    components: int = 30
    widening: float = 1.3
    fitted_draws: int = 8000
    first_steps: int = 200
    effective_tries: float = 0.9
    most_tries: int = 32
    walks: int = 3
    draws_a_step: int = 2**14
