"""Loading a model over the processes that torchrun started."""
