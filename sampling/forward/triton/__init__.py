"""Our own CUDA kernels, in Triton, which is imported where a forward needs one of them and nowhere else."""
