"""Models that were written elsewhere: in probabilistic languages, with their priors and data."""
