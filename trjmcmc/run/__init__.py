"""From a target to a result.

:class:`~trjmcmc.run.sampler.TRJSampler` is what users see. Each of its runs is one in rounds:

- ``rounds``: the algorithm, with ``recorded`` for the chains and ``summary`` for what draws say;
- ``recipes``: where runs over a kind of space begin, and what moves them;
- ``in_rounds``: limits, Ctrl-C, the result; ``aims``: what a run is for;
- ``position``, ``rounds_saved``: where a run goes on; ``shards``: chains that others advance;
- ``knowledge``: a map, where one is trained.
"""
