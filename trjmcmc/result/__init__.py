"""What a run found: probabilities, evidences, parameters, doubts, files."""
