"""The drafters, length rules and prefixes of an engine, whose declared memory outlives a prompt."""

from collections.abc import Mapping
from typing import Any

from egag.length_rule import LengthRule
from sampling.drafter import Drafter
from sampling.forward.prefixes.use import PrefixCache, Prefixes
from sampling.methods.method import Method
from sampling.methods.tables import DRAFTERS
from sampling.pair.pair import Pair
from sampling.sequence import Sequence

_MB = 10**6


class KeptDrafting:
    """By run and method: the drafter in use, the drafter before it, and the rule of the last text; by run prefixes."""

    def __init__(self) -> None:
        self._earlier: dict[tuple[str, str], Drafter] = {}
        self._drafters: dict[tuple[str, str], tuple[tuple[Any, ...], Drafter]] = {}
        self._rules: dict[tuple[str, str], LengthRule] = {}
        self._prefixes: PrefixCache | None = None

    def __len__(self) -> int:
        """How many drafters are in use."""
        return len(self._drafters)

    def drafter(self, method: Method, pair: Pair, values: Mapping[str, Any], run: str) -> Drafter:
        """The run's drafter; a new one where it would be built otherwise, which goes on with what the last knew."""
        part = DRAFTERS[method.drafter]
        parameters = tuple(str(values.get(p.name, p.default)) for p in part.all_parameters)
        weighed = pair.profile if method.weighs_costs(values) else None
        wanted = (pair.cached, pair.share, weighed, *parameters)
        key = run, method.name
        if key in self._drafters and self._drafters[key][0] == wanted:
            return self._drafters[key][1]
        drafter = self.new_drafter(method, pair, values, run, share=key in self._drafters)
        self._drafters[key] = wanted, drafter
        return drafter

    def new_drafter(
        self, method: Method, pair: Pair, values: Mapping[str, Any], run: str, share: bool = False
    ) -> Drafter:
        """A drafter that remembers what the run's does, and is not kept; share: see `Drafter.adopt`."""
        drafter: Drafter = DRAFTERS[method.drafter].build(pair, values)
        key = run, method.name
        if earlier := self._drafters[key][1] if key in self._drafters else self._earlier.get(key):
            drafter.adopt(earlier, share)
        return drafter

    def rule(self, method: Method, pair: Pair, values: Mapping[str, Any], run: str) -> LengthRule:
        """A new rule, for one text. It goes on with what the run's last one remembers."""
        rule: LengthRule = method.rule.build(pair, values)
        if earlier := self._rules.get((run, method.name)):
            rule.adopt(earlier)
        return rule

    def keep_rule(self, method: Method, run: str, rule: LengthRule) -> None:
        """The run's next rule goes on with what this one remembers."""
        self._rules[run, method.name] = rule

    def prefixes(self, values: Mapping[str, Any], run: str, new: bool = False) -> Prefixes | None:
        """The prefixes that a run's texts share, where they do; all runs together keep to one budget.

        new: the run begins with none.
        """
        if not values["prefix_cache"]:
            return None
        if self._prefixes is None:
            self._prefixes = PrefixCache(0)
        self._prefixes.memory.most = values["prefix_memory"] * _MB
        if new:
            self._prefixes.forget(run)
        return self._prefixes.of(run)

    def keep_rule_of(self, method: Method, run: str, seq: Sequence) -> None:
        """The same with the rule of a text."""
        self.keep_rule(method, run, seq.rule)

    def set_aside(self) -> None:
        """Build drafters anew, which ask those of now what they remember: the models are other ones.

        No prefix stays, as its rows may be anything.
        """
        self._prefixes = None
        self._earlier |= {key: drafter for key, (_, drafter) in self._drafters.items()}
        self._drafters = {}

    def memories(self) -> list[tuple[str, str]]:
        """(run, what it keeps) of each drafter and rule that was used and keeps something."""
        drafters = ((run, drafter.memory()) for (run, _), (_, drafter) in self._drafters.items())
        kept = (*drafters, *((run, rule.memory()) for (run, _), rule in self._rules.items()))
        return [(name, text) for name, text in kept if text]
