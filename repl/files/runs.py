"""What answers a prompt: a method as it is set, or beside it with values of its own."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ablation.plan.grid import Configuration
from sampling.methods.tables import HYBRID_MODEL, METHODS
from utils.parameter import Values


@dataclass(frozen=True, slots=True)
class Run:
    """A row of the table. `recommended`: values of a drafter's card, in place of the session's."""

    configuration: Configuration
    title: str
    recommended: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """How commands and records call it."""
        return self.configuration.name

    @property
    def method(self) -> str:
        """Name of its method."""
        return self.configuration.method

    @property
    def parameters(self) -> dict[str, Any]:
        """What it runs with in place of the session's settings; the user's own values go first."""
        return {**self.recommended, **dict(self.configuration.parameters)}

    @property
    def explicit(self) -> Configuration:
        """The same with every one of those values in its name."""
        return Configuration(self.method, tuple(self.parameters.items()))


def title_of(configuration: Configuration, values: Values) -> str:
    """What stands over its answer: the method's title, a hybrid's with what drafts in it, and its own values."""
    method, settings = METHODS[configuration.method], {**values, **dict(configuration.parameters)}
    title = method.title
    if HYBRID_MODEL in method.parameters and settings[HYBRID_MODEL.name] in METHODS:
        title = re.sub("model", METHODS[settings[HYBRID_MODEL.name]].title, title, flags=re.IGNORECASE)
    return f"{title}{configuration.name.removeprefix(method.name)}"
