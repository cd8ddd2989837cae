"""Which methods a text names."""

from sampling.methods import METHODS
from sampling.settings import Settings
from utils.errors import UserError


def choose_methods(text: str | None, settings: Settings) -> tuple[str, ...]:
    """The named methods; else those that are on."""
    names = tuple(settings.enabled()) if text is None else choose_names(text)
    if not names:
        raise UserError(f"no method to run; allowed: {', '.join(METHODS)}")
    return names


def choose_names(text: str) -> tuple[str, ...]:
    """Names of methods between commas, each once and in the given order."""
    return tuple(dict.fromkeys(METHODS[name.strip()].name for name in text.split(",") if name.strip()))
