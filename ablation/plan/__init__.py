"""What an experiment consists of: plan files, prompt sets, the grid."""
