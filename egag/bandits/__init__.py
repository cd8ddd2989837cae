"""Bandits (UCB1) that choose a draft length, or the rule of a round."""
