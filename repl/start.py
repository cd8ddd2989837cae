"""What a pair decides when it is loaded, where the user has not: what is on, and with which recommended values."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampling.methods.settings import PARAMETERS
from sampling.methods.tables import BEST_HEAD, HYBRID_MODEL, METHODS
from utils.errors import UserError
from utils.parameter import Values

if TYPE_CHECKING:
    from collections.abc import Collection

    from sampling.pair.pair import Pair

HYBRID, COPIES, AUTO = "suffix_or_model", "suffix", "auto"
_MODEL = HYBRID_MODEL.default


@dataclass(frozen=True, slots=True)
class StartSettings:
    """The settings that a pair decides, as text by name, and what the cards of its drafters recommend.

    cards: values of parameters by what drafts (`model`, or a kind of head). why: what was decided, in words that
    end a sentence. notes: what went wrong, in whole sentences.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    cards: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    why: str = ""
    notes: tuple[str, ...] = ()


def decide(pair: "Pair", values: Values, chosen: "Collection[str]") -> StartSettings:
    """What the pair decides; `chosen` names the settings that the user decided, which stay as they are in `values`."""
    lacking = dict(_lacking(pair, values))
    hybrid, why = _hybrid(pair, values, chosen)
    notes: list[str] = []
    cards = {kind: _card(folder, notes) for kind, folder in _folders(pair)}
    free = {name: text for name, text in hybrid.items() if name not in chosen}
    said = [f"{METHODS[name].title} is switched off: {text}" for name, text in lacking.items()]
    settings = {**dict.fromkeys(lacking, "off"), **free}
    return StartSettings(settings, cards, why if free else "", (*said, *notes))


def _lacking(pair: "Pair", values: Values) -> Iterator[tuple[str, str]]:
    """Methods that are on and lack what drafts, with the reason; one switched on later says so itself."""
    for method in METHODS.values():
        lacking = pair.lacks(method, values)
        if values[method.name] and lacking is not None:
            yield method.name, lacking


def _hybrid(pair: "Pair", values: Values, chosen: "Collection[str]") -> tuple[dict[str, str], str]:
    """The best hybrid of the pair: copies, and where they promise little a trained head; without one copies alone."""
    wanted = [values[HYBRID_MODEL.name]] if HYBRID_MODEL.name in chosen else (BEST_HEAD, *reversed(HYBRID_MODEL.words))
    head = next((kind for kind in wanted if kind != _MODEL and pair.has(kind)), None)
    if HYBRID in chosen:
        return {AUTO: "on"}, ""
    if head is None:
        return {AUTO: "on", COPIES: "on"}, "copies alone, as there is no trained head here for a hybrid"
    return {AUTO: "on", HYBRID: "on", HYBRID_MODEL.name: head}, "the best hybrid of this pair"


def _folders(pair: "Pair") -> Iterator[tuple[str, Path]]:
    """Where the drafters lie that were trained for the pair's target."""
    yield from pair.heads.items()
    if pair.drafter_info is not None and pair.drafter_info.trained:
        yield _MODEL, Path(pair.drafter_info.place)


def _card(folder: Path, notes: list[str]) -> dict[str, Any]:
    """The values that a card recommends, without those that no parameter takes."""
    from sampling.heads.head_files import CONFIG, read_json

    cards: dict[str, Any] = {}
    values = read_json(folder / CONFIG).get("recommended", {})
    for name, value in values.items() if isinstance(values, dict) else ():
        try:
            cards[name] = PARAMETERS[name].parse(str(value))
        except UserError as error:
            notes.append(f"{folder / CONFIG} recommends {name} {value}, which is left out: {error}")
    return cards
