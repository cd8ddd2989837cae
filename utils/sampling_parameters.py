"""What processors are made of: one definition for the tables and for Python calls."""

from utils.parameter import integer, number

TEMPERATURE = number("temperature", None, "softmax temperature", above=0.0)
TOP_K = integer("top_k", None, "how many tokens stay in", minimum=1)
TOP_P = number("top_p", None, "mass of the tokens that stay in", above=0.0, maximum=1.0)
