"""What outlives a prompt: drafters with a declared memory, and heads as they were laid out."""
