"""Every draft-length rule, with its defaults and with each parameter changed, decides what it decided before."""

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from egag.choosing.drafter_chooser import DrafterChooser
from egag.cost_model import CostModel
from egag.length_rule import LengthRule
from sampling.methods.rules import CONTROLLERS
from tests.recorded import check_recorded
from tests.rules import Told, drafts
from utils.events import Round
from utils.parameter import Parameter

ROUNDS, LONGEST, SIZE = 60, 24, 512
PRICE = CostModel(((1, 20.0), (5, 22.0), (17, 34.0)), first_s=2.5, step_s=1.5, rest_s=0.5)


class Text:
    """A made-up text whose parts are easy and hard by turns, for a drafter that knows roughly which."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def drafts(self, number: int) -> list[Told]:
        """What a drafter would say of each draft of a round."""
        ease = 0.5 + 0.45 * math.sin(number / 7)
        return [self._told(min(0.999, max(0.02, self.rng.gauss(ease, 0.25)))) for _ in range(LONGEST)]

    def _told(self, chance: float) -> Told:
        entropy = (1 - chance) * math.log(SIZE) * self.rng.uniform(0.5, 1.0)
        return Told(entropy, chance, chance * self.rng.choice((1.0, 1.0, 0.5)), SIZE)

    def judged(self, number: int, told: list[Told], gamma: int) -> Round:
        """The verdict: each draft is accepted as often as its chance says. The seconds are those of `PRICE`, nearly."""
        accepted = 0
        while accepted < len(told) and self.rng.random() < told[accepted].top:
            accepted += 1
        chances, seconds = tuple(one.drawn for one in told), PRICE.verify_s(len(told)) * self.rng.uniform(0.95, 1.2)
        return Round(
            number, 9, gamma, tuple(range(len(told))), None, chances, chances, tuple(range(accepted)), 1,
            told[0].entropy if told else None, SIZE, PRICE.draft_s(len(told)), seconds, PRICE.rest_s,
        )  # fmt: skip


def drawn(rule: LengthRule, text: Text) -> Iterator[int]:
    """How many drafts are drawn in each round."""
    for number in range(ROUNDS):
        told = text.drafts(number)
        count = drafts(rule, told)
        rule.update(text.judged(number, told[:count], rule.gamma))
        yield count


def copied(rule: LengthRule, text: Text) -> Iterator[int]:
    """How many of a copy's drafts are kept in each round, which a drafter without distributions proposes."""
    for number in range(ROUNDS):
        told, count = text.drafts(number), drafts(rule, [None] * LONGEST)
        chances = [math.prod(one.top for one in told[: place + 1]) for place in range(count)]
        kept = rule.truncation.truncate(chances, 1 + number % 7)
        rule.update(text.judged(number, told[:kept], rule.gamma))
        yield kept


def grown(rule: LengthRule, text: Text) -> Iterator[int]:
    """The nodes of each round's tree: two alternatives after the likelier one of each layer."""
    for number in range(ROUNDS):
        told, growth = text.drafts(number), rule.tree_growth
        parents, chances, level = list[int](), list[float](), 0
        if growth.start_tree(told[0]):
            layer, above = [1.0], -1
            while level < LONGEST and (not level or growth.expand_layer(level, chances, layer)):
                best = layer[0] * growth.acceptance(told[level].top, level)
                layer = [best, best * 0.3]
                parents += [above, above]
                chances += layer
                above, level = len(parents) - 2, level + 1
        order = sorted(range(len(chances)), key=lambda node: -chances[node])
        places = {node: place for place, node in enumerate(order)} | {-1: -1}
        kept = rule.truncation.truncate([chances[node] for node in order], 0, [places[parents[n]] for n in order])
        rule.update(text.judged(number, told[: min(kept, level)], rule.gamma))
        yield kept


def decided(name: str, values: dict[str, Any], measured: bool = True) -> list[str]:
    """What a rule decides on three texts, what it keeps of them, and what another one makes of that."""
    rule, lines = CONTROLLERS[name].build(None, values), list[str]()
    if measured:
        rule.use_cost_model(PRICE)
    for seed, way in enumerate((drawn, drawn, copied, grown)):
        rule.begin()
        lines.append(written(way(rule, Text(seed))))
    heir = CONTROLLERS[name].build(None, values)
    heir.adopt(rule)
    heir.begin()
    lines.append(written(drawn(heir, Text(9))))
    return [*lines, rule.memory(), heir.memory()]


def written(counts: Iterator[int]) -> str:
    """Numbers in a line: `4x3 5` for 4, 4, 4, 5."""
    runs = ((count, len([*run])) for count, run in groupby(counts))
    return " ".join(f"{count}x{times}" if times > 1 else str(count) for count, times in runs)


def other(parameter: Parameter) -> Any:
    """Another value than the default; None where there is none to speak of."""
    default = parameter.default
    if isinstance(default, bool):
        return not default
    if isinstance(default, int):
        return default + 2
    return default / 2 if isinstance(default, float) else None


def test_rules_decide_what_they_decided() -> None:
    found = {}
    for name, part in CONTROLLERS.items():
        found[name] = decided(name, {})
        if part.weighs:
            found[f"{name} at assumed costs"] = decided(name, {}, measured=False)
        for parameter in part.parameters:
            if (value := other(parameter)) is not None:
                found[f"{name} {parameter.name} {value}"] = decided(name, {parameter.name: value})
    check_recorded(Path(__file__).with_name("recorded.json"), found)


def test_the_choice_between_drafters_is_what_it_was() -> None:
    """Three drafters: one dear and good, one cheap and poor, one that copies what there is."""
    chooser, names, found = DrafterChooser(), ("model", "head", "suffix"), list[str]()
    chooser.use_cost_model(PRICE)
    for seed in range(2):
        chooser.begin()
        text = Text(seed)
        for name, step_s in zip(names, (3.0, 0.5, 0.0), strict=True):
            chooser.rule_for(name).use_cost_model(CostModel(PRICE.forward, 2 * step_s, step_s, PRICE.rest_s))
        for number in range(ROUNDS):
            expected = {name: chooser.rule_for(name).expected() for name in names}
            name = chooser.choose({**expected, "none": chooser.without_drafts()})
            told = text.drafts(number + 30 * names.index(name) if name in names else number)
            rule = chooser.rule_for(name) if name in names else None
            count = drafts(rule, told) if rule else 0
            round = text.judged(number, told[:count], rule.gamma if rule else 0)
            chooser.update(replace(round, source=name))
            found.append(f"{name[0]}{count}")
    check_recorded(
        Path(__file__).with_name("recorded_choice.json"), {"choices": " ".join(found), "memory": chooser.memory()}
    )
