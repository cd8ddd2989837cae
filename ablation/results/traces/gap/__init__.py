"""What lies between a draft-length rule and the oracle, split by what could have been known."""
