"""Which decoders the lean forward computes, each described from its configuration in one function."""
