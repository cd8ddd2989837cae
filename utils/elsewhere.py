"""Names of other repositories with this layout that nothing here has: importing one says where the thing is."""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

_PLAIN = "its functions are in sampling: from sampling import speculative_generate"
ELSEWHERE = {
    "utils.caching": "caches roll back by themselves; transformers' DynamicCache.crop(-n) takes n tokens off its own",
    "utils.printing": "debug=True tells each round on stderr, and sampling.decode yields the rounds",
    "utils.logits_processors": "the module is utils.logits_processor",
    "sampling.base_decoding": _PLAIN,
    "sampling.speculative_decoding": f"{_PLAIN}; max_fn is sampling.verify.rejection.residual(p, q)",
    "sampling.codec_base_decoding": _PLAIN,
    "sampling.codec_speculative_decoding": _PLAIN,
    "ngram_assisted.INgramStorage": "the base class is NGramStorage",
}


class _Elsewhere(MetaPathFinder):
    """The last one that is asked for a module: nobody else has it."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if name in ELSEWHERE:
            raise ImportError(f"there is no {name} here: {ELSEWHERE[name]}", name=name)


sys.meta_path.append(_Elsewhere())
