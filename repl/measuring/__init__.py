"""What measures on the session's pair: /ablate and /batch."""
