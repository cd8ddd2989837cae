"""What answers a prompt: a method as it is set, or beside it with values of its own."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ablation.plan.grid import Configuration
from sampling.methods.method import labelled
from sampling.methods.tables import HYBRID_MODEL, METHODS
from utils.parameter import Values


@dataclass(frozen=True, slots=True)
class Run:
    """A row of the table.

    called: its method's title, a hybrid's with what drafts in it. recommended: values of a drafter's card, in place of
    the session's.
    """

    configuration: Configuration
    called: str
    recommended: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """How commands and records call it. Example: `speculative gamma=2`."""
        return self.configuration.name

    @property
    def title(self) -> str:
        """What stands over its answer. Example: `SD gamma=2`."""
        return f"{self.called}{self._values}"

    @property
    def label(self) -> str:
        """What stands in the table: the title with the name. Example: `SD (speculative) gamma=2`."""
        return f"{labelled(self.called, self.method)}{self._values}"

    @property
    def calls(self) -> tuple[str, ...]:
        """All that it answers to in a command."""
        return self.name, self.title, self.label

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

    @property
    def _values(self) -> str:
        return self.name.removeprefix(self.method)


def called(configuration: Configuration, values: Values) -> str:
    """The method's title, a hybrid's with what drafts in it in place of the word model."""
    method, settings = METHODS[configuration.method], {**values, **dict(configuration.parameters)}
    if HYBRID_MODEL not in method.parameters or settings[HYBRID_MODEL.name] not in METHODS:
        return method.title
    return re.sub("model", METHODS[settings[HYBRID_MODEL.name]].title, method.title, flags=re.IGNORECASE)
