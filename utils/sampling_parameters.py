"""What processors are made of: one definition for the tables and for Python calls."""

from utils.parameter import LARGEST, integer, number

# Beyond these logits are no numbers in float32 once they are divided; greedy is what the lower one comes to.
COLDEST, HOTTEST = 1e-10, 1e10

TEMPERATURE = number("temperature", None, "softmax temperature", minimum=COLDEST, maximum=HOTTEST)
TOP_K = integer("top_k", None, "how many tokens stay in", minimum=1, maximum=LARGEST)
TOP_P = number("top_p", None, "mass of the tokens that stay in", above=0.0, maximum=1.0)
