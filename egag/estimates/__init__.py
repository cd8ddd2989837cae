"""What rules estimate from verified rounds: acceptance, the cost of a round, and both for one drafter."""
