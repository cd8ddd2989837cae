"""Which trained drafters there are for a target: those a user names, and those that come with the project."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from sampling.heads.config import HeadConfig
from sampling.heads.head_files import CONFIG, fingerprint, load_head, read_json
from sampling.heads.inference import small_model
from sampling.heads.published.formats import check_fit, kind_of
from sampling.heads.published.windows import HeadWindow
from sampling.loading.checkpoint import LoadedModel
from sampling.loading.options import LOAD
from sampling.loading.origin import beside, hub_answers, is_hub_id
from sampling.loading.refusals.explained import unfetched
from sampling.pair.model_info import ModelInfo
from sampling.pair.pair import MODEL, Pair
from utils.errors import UserError
from utils.files import checked_path
from utils.provenance import ROOT

MODELS = ROOT / "models"
_FILES = ["*.json", "*.safetensors", "*.bin", "*.pt"]


def heads_for(target: str, place: str | None) -> dict[str, Path]:
    """Folders of heads by kind: those in `place`, commas between, then those in models/ for this target.

    What `place` names is a folder, or a hub id whose files are fetched. Raises `UserError` for what is no head, for a
    hub id that cannot be had, and for two of one kind.
    """
    folders: dict[str, Path] = {}
    for text in place.split(",") if place else ():
        folder = _folder(text.strip())
        kind = kind_of(folder)
        if kind in folders:
            raise UserError(f"{folders[kind]} and {folder} are both {kind} heads; expected one of each kind")
        folders[kind] = folder
    for folder in sorted(MODELS.glob("*/")):
        if is_own_head(folder) and (config := _config(folder)).base == target:
            folders.setdefault(config.method, folder)
    return folders


def _folder(place: str) -> Path:
    """A folder as it is; of a hub id the folder in the hub's cache, with config and weights."""
    folder = checked_path(place, "heads")
    if folder.exists() or not is_hub_id(place):
        return folder
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(place, allow_patterns=_FILES, local_files_only=not hub_answers()))
    except (OSError, ValueError) as error:  # ValueError: what the hub's client says of a name that none can have
        raise unfetched(
            place, error, f"a hub id (owner/name) or the folder of a trained head{beside(folder)}"
        ) from None


def is_trained_model(place: str) -> bool:
    """Whether this is the folder of a distilled model, which needs its target's embedding."""
    path = Path(place).expanduser() / CONFIG
    return path.is_file() and read_json(path).get("method") == MODEL


def load_trained_model(folder: Path, target: LoadedModel) -> LoadedModel:
    """A distilled drafter on its target's own embedding and output rows. Raises `UserError` for another target's."""
    head = load_head(folder)
    check_fit(head, target.info.name, target.info.place, target.model, fingerprint(target.model.landmarks()))
    model = small_model(head, target.model)
    words = (
        "the whole vocabulary"
        if head.config.draft_vocab == head.config.vocab_size
        else (f"the {head.config.draft_vocab:,} most frequent tokens")
    )
    detail = f"distilled from {head.config.base}; {head.config.layers} layers on the target's embedding, {words}"
    name, place = f"{target.info.name}, distilled", str(folder)
    info = ModelInfo(name, target.info.device, target.info.dtype, detail, place, trained=True, kernel=model.kernel)
    return replace(target, model=model, info=info, notes=())


def with_head_window(pair: Pair, wanted: int | None) -> Pair:
    """The pair whose heads draft for so many positions (`LoadOptions.head_window`), and notes of where that matters.

    Raises `UserError` for a number that is none, or that a head's rotary embedding does not reach.
    """
    wanted = None if wanted is None else LOAD["head_window"].checked(wanted)
    pair = replace(pair, head_window=wanted)
    notes = [*_window_notes(pair), *(_window_notes(pair.of_drafter) if pair.drafter and pair.drafter_heads else ())]
    return replace(pair, notes=tuple(dict.fromkeys((*pair.notes, *notes))))


def _window_notes(pair: Pair) -> Iterator[str]:
    """A sentence for each head that drafts beyond its own window, or not up to the end of the target's."""
    name, window = pair.target_info.name, pair.target.model.window
    for kind, folder in pair.heads.items():
        own = HeadWindow.in_folder(folder)
        if own is None:
            continue
        reach = own.within(pair.head_window, window)
        if reach < window:
            yield (
                f"The {kind} head has {reach} positions, {name} {window}: it drafts nothing after token {reach} "
                "(--head-window)."
            )
        elif own.stated < window:
            yield (
                f"The {kind} head says {own.stated} positions, {name} has {window}: it drafts for all of them, maybe "
                f"worse after token {own.stated} (--head-window {own.stated} ends it there)."
            )


def is_own_head(folder: Path) -> bool:
    """Whether a head in our format lies in the folder, and not a whole model."""
    return (folder / CONFIG).is_file() and "method" in read_json(folder / CONFIG)


def _config(folder: Path) -> HeadConfig:
    return HeadConfig.from_dict(dict(read_json(folder / CONFIG)), str(folder))
