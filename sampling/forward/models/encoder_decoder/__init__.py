"""Encoder-decoder models: what a runner asks of one, and the decoders of the families."""
