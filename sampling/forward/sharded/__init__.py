"""One model over several processes: each holds a part of every weight, and all compute each forward together."""
