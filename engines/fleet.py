"""The engines of a plan, ready to be asked, and ended when it is over."""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from engines.dialect import Dialect
from engines.home import ExternalEngine
from engines.server.api import KEY, Api
from engines.server.launch import Launcher
from engines.server.served import ServedEngine
from engines.spec import TRANSFORMERS, UNKNOWN, EngineSpec, read_launch
from engines.speculation import config_for
from sampling.loading.gguf.cache import source_of
from sampling.loading.gguf.convert import stored_as
from sampling.methods.settings import Settings
from sampling.methods.tables import AR
from sampling.pair.local_engine import LocalEngine
from sampling.pair.model_info import ModelInfo
from utils.errors import UserError
from utils.json_text import read_json


@contextmanager
def ready(specs: Sequence[EngineSpec], home: LocalEngine, at_once: bool = False) -> Iterator[dict[str, ExternalEngine]]:
    """The engines by name. Servers that should run are asked whether they do; those to be started start when needed.

    at_once: whether a server stays when the next one of its engine is started. Raises `UserError`.
    """
    with ExitStack() as stack:
        yield {spec.name: _engine(spec, home, stack, at_once) for spec in specs}


def _engine(spec: EngineSpec, home: LocalEngine, stack: ExitStack, at_once: bool) -> ExternalEngine:
    if spec.kind == TRANSFORMERS:
        from engines.transformers_engine import TransformersEngine

        return TransformersEngine(home)
    dialect = spec.speaks
    apis = {} if spec.started else _running(spec, dialect)
    model = spec.model or next(map(_only_model, apis.values()), "") or _loaded(spec, dialect, home.describe().target)
    weights = stored_as(Path(model)) if spec.weights == UNKNOWN and model.endswith(".gguf") else spec.weights
    spec = replace(spec, model=model, weights=weights)
    if apis:
        running = ServedEngine(home, spec, lambda config: apis.get("") or apis[config["method"]])
        running.greet(spec.played or (AR,))
        return running
    program = read_launch(spec.started)[0]
    if shutil.which(program) is None:
        raise UserError(f"engine {spec.name}: {program!r} given, and there is no such program")
    launcher = stack.enter_context(Launcher(spec.started, dialect, spec.model, at_once=at_once))
    return ServedEngine(home, spec, launcher.api_of, _drafter(spec, home, stack), launcher.close)


def _loaded(spec: EngineSpec, dialect: Dialect, target: ModelInfo) -> str:
    """What an engine calls or loads where the plan does not say: the loaded target, as a file where it needs one.

    Raises `UserError` where that did not come from a file.
    """
    if "{model}" not in spec.started:
        return target.name
    if dialect.folders:
        return target.place
    if (file := source_of(Path(target.place))) is None:
        raise UserError(f"engine {spec.name}: model: '' given; expected the GGUF file that {dialect.name} loads")
    return str(file)


def _drafter(spec: EngineSpec, home: LocalEngine, stack: ExitStack) -> Callable[[], str]:
    """What it loads to draft: what the plan says, or our own drafter, written once where it has no checkpoint."""
    if spec.drafter:
        return lambda: spec.drafter

    @cache
    def ours() -> str:
        from engines.checkpoints import drafter_folder

        return drafter_folder(home.pair, Path(stack.enter_context(TemporaryDirectory(prefix="drafter-"))))

    return ours


def _running(spec: EngineSpec, dialect: Dialect) -> dict[str, Api]:
    """The servers that run, by the method with which each speculates; under "" the one that takes it by request.

    `/v1` behind an address is ours to add. Raises `UserError` for one that does not answer.
    """
    key = os.environ.get(KEY, "")
    known = {config_for(dialect, method, Settings())["method"]: Api(_root(url), key) for method, url in spec.urls}
    if spec.url:
        known[""] = Api(_root(spec.url), key)
    for api in known.values():
        try:
            api.reach(dialect.health)
        except UserError as error:
            raise UserError(f"engine {spec.name}: {error}; is it running?") from None
    return known


def _only_model(api: Api) -> str:
    """What a server calls its only model, as vLLM says its folder; nothing where it does not say, or has several."""
    try:
        models = read_json(api.get("/v1/models").decode())["data"]
        return str(models[0]["id"]) if len(models) == 1 else ""
    except (UserError, ValueError, KeyError, TypeError):
        return ""


def _root(url: str) -> str:
    return url.rstrip("/").removesuffix("/v1")
