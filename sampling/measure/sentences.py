"""Figures of a run, said in a sentence."""

from typing import Protocol


class InnerCounts(Protocol):
    """What `stages` reads of a run; None is unknown."""

    @property
    def drafted(self) -> int | None: ...
    @property
    def inner_rounds(self) -> int | None: ...
    @property
    def inner_tested(self) -> int | None: ...
    @property
    def inner_accepted(self) -> int | None: ...


def stages(run: InnerCounts) -> str | None:
    """What drafting for the drafter model brought, in words; None where nobody did."""
    if not run.inner_rounds:
        return None
    said = f"{(run.drafted or 0) / run.inner_rounds:.2f} drafts a forward of the drafter model"
    if not run.inner_tested:
        return f"{said}, nothing was drafted for it"
    return (
        f"{said}, which accepted {(run.inner_accepted or 0) / run.inner_tested:.0%} of the drafts for it that it judged"
    )


def gammas_reached(least: int, most: int) -> str:
    """What a rule made of its freedom, from the shortest and the longest draft that it asked for."""
    if least == most:
        return f"asked for {most} drafts in every round, its rule never moved: it is a fixed gamma of {most}"
    return f"asked for {least} to {most} drafts a round"
