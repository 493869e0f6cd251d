"""What is sampled: priors and likelihoods as one log density over padded coordinates."""
