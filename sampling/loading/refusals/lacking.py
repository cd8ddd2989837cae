"""What a call lacks, from names and configurations alone: before minutes are spent on reading weights."""

from collections.abc import Iterable

from sampling.loading.embedded import EMBEDDED_NAME
from sampling.loading.heads import heads_for
from sampling.loading.options import RANDOM, LoadOptions
from sampling.methods.part import OF_DRAFTER
from sampling.pair import pair_messages as messages
from sampling.pair.pair import MODEL
from utils.errors import UserError
from utils.files import checked_path


def refuse_lacking(options: LoadOptions, needs: Iterable[str | None]) -> None:
    """Raise `UserError` where the pair will not have what is needed: `model`, or a kind of head (`Method.needs`).

    What only loading can tell passes: heads of the drafter model, and whether the target takes heads at all.
    """
    target = _name(options.target)
    kinds = set(heads_for(target, options.heads)) | ({MODEL} if options.drafter is not None else set())
    for needed in needs:
        if needed is not None and not needed.startswith(OF_DRAFTER) and needed not in kinds:
            lacking = messages.NO_DRAFTER_MODEL if needed == MODEL else messages.no_head(needed, target, "", False)
            raise UserError(lacking)


def _name(place: str | None) -> str:
    """What the target will be called, as `origin.resolve` has it."""
    if place is None:
        return EMBEDDED_NAME
    if place.startswith(RANDOM):
        return place
    path = checked_path(place, "model")
    return path.resolve().name if path.is_dir() else path.stem if path.is_file() else place
