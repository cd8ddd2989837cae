"""Other programs that decode the same models, each in a process of its own."""
