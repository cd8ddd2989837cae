"""What a user calls fast enough. No torch is imported here."""

from typing import NamedTuple, Self

from utils.errors import wrong_value
from utils.parameter import read_number

_USAGE = "ttft:MS, tpot:MS or both between commas, such as ttft:500,tpot:50"


class Slo(NamedTuple):
    """Service level objectives in milliseconds: of the first token from the prompt's arrival, and of each further one.

    None: any time will do.
    """

    ttft_ms: float | None = None
    tpot_ms: float | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """From `ttft:500,tpot:50`. Raises `UserError`."""
        limits: dict[str, float] = {}
        for part in text.split(","):
            name, colon, number = (piece.strip() for piece in part.partition(":"))
            value = read_number(number)
            if name not in ("ttft", "tpot") or not colon or value is None or not value > 0.0 or name in limits:
                raise wrong_value("slo", text, _USAGE)
            limits[name] = value
        return cls(limits.get("ttft"), limits.get("tpot"))

    @property
    def text(self) -> str:
        """As `parse` reads it."""
        limits = {"ttft": self.ttft_ms, "tpot": self.tpot_ms}
        return ",".join(f"{name}:{value:g}" for name, value in limits.items() if value is not None)

    def met(self, ttft_ms: float | None, tpot_ms: float | None) -> bool:
        """Whether a text was fast enough; one without a second token has no tpot to miss."""
        late = self.ttft_ms is not None and (ttft_ms is None or ttft_ms > self.ttft_ms)
        return not late and (self.tpot_ms is None or tpot_ms is None or tpot_ms <= self.tpot_ms)
