"""A rule that lets another one decide: what watches a rule, and what chooses between several."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from egag.belief import Belief, Token
from egag.controller import GammaController
from egag.gain import Gain, Weighed
from egag.price import Price
from utils.events import Round


class DelegatingGamma(GammaController):
    """Passes every question on to `rule`, which may be another one in another round."""

    @property
    @abstractmethod
    def rule(self) -> GammaController:
        """Who decides this round."""

    @property
    def gamma(self) -> int:  # type: ignore[override]
        return self.rule.gamma

    @property
    def survival(self) -> Sequence[float]:  # type: ignore[override]
        return self.rule.survival

    def priced(self, price: Price) -> None:
        self.rule.priced(price)

    def begin(self) -> None:
        self.rule.begin()

    def before(self, drafted: int, belief: Belief | None) -> bool:
        return self.rule.before(drafted, belief)

    def after(self, drafted: int, belief: Belief | None, token: Token | None) -> bool:
        return self.rule.after(drafted, belief, token)

    def plant(self, belief: Belief | None, steps: int = 1) -> bool:
        return self.rule.plant(belief, steps)

    def acceptance(self, chance: float, depth: int) -> float:
        return self.rule.acceptance(chance, depth)

    def deeper(self, level: int, chances: Sequence[float], layer: Sequence[float]) -> bool:
        return self.rule.deeper(level, chances, layer)

    def keep(self, chances: Sequence[float], match: int = 0, parents: Sequence[int] | None = None) -> int:
        return self.rule.keep(chances, match, parents)

    def weigh(self, chances: Sequence[float], match: int = 0, parents: Sequence[int] | None = None) -> Weighed:
        return self.rule.weigh(chances, match, parents)

    def seconds(self, drafts: int) -> float:
        return self.rule.seconds(drafts)

    def of(self, name: str) -> GammaController:
        return self.rule.of(name)

    def promise(self) -> Gain:
        return self.rule.promise()

    def choose(self, promises: Mapping[str, Gain]) -> str:
        return self.rule.choose(promises)

    def placed(self, rows: Sequence[int]) -> None:
        self.rule.placed(rows)

    def update(self, round: Round) -> None:
        self.rule.update(round)
