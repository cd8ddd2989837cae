"""The settings of a session: its own beside those of every run."""

from sampling.methods.settings import LISTED, PARAMETERS
from utils.parameter import Parameter, choice, toggle
from utils.registry import Registry

DEBUG = toggle(
    "debug",
    False,
    "each round: one line per draft with q and p, after and before the processor, and the target's token",
)
REFERENCE_TURNS = "reference"
TURNS = choice(
    "turns",
    "off",
    "continue the dialogue: on = each method its own answers, reference = all methods AR's answers; off = no dialogue",
    ("off", "on", REFERENCE_TURNS),
)
OWN = Registry[Parameter]("setting", DEBUG, TURNS)
DEFAULT = "default"
STATE = Registry[Parameter]("setting", *PARAMETERS.values(), *OWN.values(), listed=LISTED)
