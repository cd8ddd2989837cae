"""Our tokenizer of a converted checkpoint against transformers' own: ids, texts, templates, and when it steps aside."""

import json
import shutil
from collections.abc import Iterator, Mapping
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from jinja2 import TemplateError
from jinja2.exceptions import SecurityError
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from sampling.grammar.vocabulary import vocabulary_of
from sampling.loading.checkpoint import tokenizer_of
from sampling.loading.embedded import embedded_gguf
from sampling.loading.gguf.cache import converted
from sampling.loading.stop import stop_ids
from sampling.methods.chat_template import TemplateVariables
from sampling.pair.conversation_ids import conversation_ids
from sampling.pair.prompt_ids import prompt_ids
from sampling.tokenizer.contract import ARGUMENTS, SPECIALS
from sampling.tokenizer.converted import ConvertedTokenizer, converted_tokenizer
from tests.tiny import CHAT, GRANITE, THINKS, tiny_tokenizer

ROOT = Path(__file__).resolve().parents[3]
TEXTS = (
    "",
    "Why is the sky blue?",
    "a  12\n\n\t345 x=1",
    "héllo 世界 🤗 naïve e\u0301\u200d",
    "<|im_start|>user\nHello<|im_end|>\n<|endoftext|><|im_end",
    " <file_sep> <jupyter_start>x",
    (ROOT / "README.zh-CN.md").read_text(encoding="utf-8"),
    (ROOT / "infer.py").read_text(encoding="utf-8"),
)
TOOL = {
    "type": "function",
    "function": {"name": "look", "description": "<b>&", "parameters": {"type": "object", "properties": {}}},
}
CALL = {"type": "function", "function": {"name": "look", "arguments": {"at": "é", "deep": [1, 2.5, None, True]}}}
TALKS: tuple[list[dict[str, Any]], ...] = (
    [{"role": "user", "content": "Hi"}],
    [{"role": "system", "content": "Be brief. "}, {"role": "user", "content": "  Hi  \n"}],
    [
        {"role": "user", "content": "Where?"},
        {"role": "assistant", "content": "", "reasoning": "It <is> here & there.", "tool_calls": [CALL]},
        {"role": "tool", "content": "here", "name": None},
        {"role": "assistant", "content": "Here it is: "},
    ],
)
FULL = (
    "{%- set seen = namespace(first=true) %}{{ bos_token }}{{ eos_token }}"
    "{% for m in messages %}{% if m.role == 'tool' %}{% continue %}{% endif %}\n"
    "  {%- if m.reasoning_content %}{{ m.thinking }}|{{ m.reasoning_content | trim }}{% endif %}\n"
    "{% generation %}{{ m['content'] }}{% endgeneration %}{{ m.tool_calls | tojson(indent=1) if m.tool_calls }}\n"
    "{% set seen.first = false %}{% endfor %}{{ seen.first }}{{ 'name' in messages[-2] if messages | length > 1 }}"
    "{{ tools | tojson if tools }}{{ dict(a=1) }}{{ documents is none }}{{ strftime_now('%Y') }}"
    "{{ dict(messages[0]) | length }}{{ add_generation_prompt }}"
)
TRIMS = "{% for m in messages %}{{ m['content'] | trim }}!{% endfor %}"
TEMPLATES = (None, CHAT, THINKS, GRANITE, FULL, TRIMS)


@pytest.fixture(scope="module")
def folder() -> Path:
    return converted(embedded_gguf())


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Any:
    return PreTrainedTokenizerFast.from_pretrained(folder)


@pytest.fixture
def both(folder: Path, theirs: Any) -> Iterator[tuple[ConvertedTokenizer, Any]]:
    """Ours anew, and transformers', whose template is put back."""
    ours, template = converted_tokenizer(folder), theirs.chat_template
    assert ours is not None
    yield ours, theirs
    theirs.chat_template = template


def test_what_it_says_of_itself_is_what_transformers_says(both: tuple[ConvertedTokenizer, Any]) -> None:
    ours, theirs = both
    assert json.loads(ours.backend_tokenizer.to_str()) == json.loads(theirs.backend_tokenizer.to_str())
    assert len(ours) == len(theirs) and ours.get_vocab() == theirs.get_vocab()
    assert ours.special_tokens_map == theirs.special_tokens_map
    assert ours.all_special_ids == theirs.all_special_ids and ours.eos_token_id == theirs.eos_token_id == 2
    assert repr(ours.added_tokens_decoder) == repr(theirs.added_tokens_decoder)
    assert ours.chat_template == theirs.chat_template == ours.get_chat_template()
    assert stop_ids("it", ours, 49152) == stop_ids("it", theirs, 49152)


@pytest.mark.parametrize("text", TEXTS)
def test_ids_and_texts_are_those_of_transformers(both: tuple[ConvertedTokenizer, Any], text: str) -> None:
    ours, theirs = both
    for special in (True, False):
        assert ours.encode(text, add_special_tokens=special) == theirs.encode(text, add_special_tokens=special)
    ids = ours.encode(text)
    for skip in (True, False):
        assert ours.decode(ids, skip_special_tokens=skip) == theirs.decode(ids, skip_special_tokens=skip)
        assert ours.decode(ids[1::2], skip_special_tokens=skip) == theirs.decode(ids[1::2], skip_special_tokens=skip)
    tokens = ours.convert_ids_to_tokens(ids)
    assert tokens == theirs.convert_ids_to_tokens(ids)
    assert ours.convert_tokens_to_ids([*tokens, "\n none"]) == theirs.convert_tokens_to_ids([*tokens, "\n none"])
    assert ours.decode(5) == theirs.decode(5) and ours.convert_ids_to_tokens(5) == theirs.convert_ids_to_tokens(5)


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("talk", TALKS)
@pytest.mark.parametrize(
    "options",
    [
        {"add_generation_prompt": True},
        {"tools": [TOOL], "enable_thinking": False, "thinking": True},
        {"continue_final_message": True, "bos_token": "another"},
    ],
)
def test_templates_are_rendered_as_transformers_renders_them(
    both: tuple[ConvertedTokenizer, Any], template: str | None, talk: list[dict[str, Any]], options: Mapping[str, Any]
) -> None:
    ours, theirs = both
    if template is not None:
        ours.chat_template = theirs.chat_template = template
    before = json.dumps(talk)
    assert ours.apply_chat_template(talk, tokenize=False, **options) == theirs.apply_chat_template(
        talk, tokenize=False, **options
    )
    assert json.dumps(talk) == before, "a template has changed the messages"


@pytest.mark.parametrize("template", [CHAT, THINKS, GRANITE, FULL])
def test_conversations_become_the_same_ids(both: tuple[ConvertedTokenizer, Any], template: str) -> None:
    told = [TemplateVariables("off")] if template in (THINKS, GRANITE) else []
    for tokenizer in both:
        tokenizer.chat_template = template
    for variables in (TemplateVariables(), *told):
        for turns in (["Hi"], ["Hi", "Hello.", "Why?"]):
            for system in (None, "Be brief."):
                ids = [prompt_ids(tokenizer, "it", 8192, turns, True, True, system, variables) for tokenizer in both]
                assert ids[0] == ids[1]
        for talk in TALKS:
            ids = [conversation_ids(tokenizer, "it", 8192, talk, [TOOL], variables) for tokenizer in both]
            assert ids[0] == ids[1]


@pytest.mark.parametrize(
    ("template", "error"),
    [
        ("{{ raise_exception('no') }}", TemplateError),
        ("{% if %}", TemplateError),
        ("{{ messages.append(1) }}", SecurityError),
        ("{{ ''.__class__.__mro__ }}", SecurityError),
        ("{% set n = namespace(_x=1) %}", SecurityError),
        ("{% set n = namespace() %}{% set n._x = 1 %}", SecurityError),
        ("{{ 1 + 'a' }}", TypeError),
    ],
)
def test_a_template_fails_as_it_does_in_transformers(
    both: tuple[ConvertedTokenizer, Any], template: str, error: type[Exception]
) -> None:
    for tokenizer in both:
        tokenizer.chat_template = template
        with pytest.raises(error):
            tokenizer.apply_chat_template(TALKS[0], tokenize=False)


def test_what_cannot_be_continued_or_shown_is_refused_by_both(both: tuple[ConvertedTokenizer, Any]) -> None:
    for tokenizer in both:
        for template in ("{{ messages[0]['role'] }}", "{{ messages[0]['content'][:1] }}", None):
            tokenizer.chat_template = template
            with pytest.raises(ValueError, match=r"final|template"):
                tokenizer.apply_chat_template(TALKS[0], tokenize=False, continue_final_message=True)
        tokenizer.chat_template = CHAT
        with pytest.raises(ValueError, match="message"):
            tokenizer.apply_chat_template([], tokenize=False)
        with pytest.raises(ValueError, match="add_generation_prompt"):
            tokenizer.apply_chat_template(
                TALKS[0], tokenize=False, add_generation_prompt=True, continue_final_message=True
            )


def test_what_only_transformers_does_is_refused_and_handed_on(folder: Path) -> None:
    ours = tokenizer_of(folder)
    assert isinstance(ours, ConvertedTokenizer)
    for more in ({"tokenize": True}, {"tokenize": False, "return_tensors": "pt"}):
        with pytest.raises(TypeError, match="in_transformers"):
            ours.apply_chat_template(TALKS[0], **more)
    ours.chat_template = CHAT
    theirs = ours.in_transformers()
    assert theirs.chat_template == CHAT and theirs(TEXTS[3])["input_ids"] == ours.encode(TEXTS[3])


def test_a_saved_one_is_read_by_transformers(folder: Path, tmp_path: Path) -> None:
    ours = tokenizer_of(folder)
    ours.save_pretrained(tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path).encode(TEXTS[6]) == ours.encode(TEXTS[6])


def test_a_grammar_reads_the_same_bytes(both: tuple[ConvertedTokenizer, Any]) -> None:
    ours, theirs = (vocabulary_of(tokenizer, 49152, frozenset({2})) for tokenizer in both)
    assert all(ours.bytes_of(token) == theirs.bytes_of(token) for token in range(0, 49152, 7))


def test_no_template_is_told_what_transformers_takes_itself() -> None:
    """Names that another version adds would be taken for variables."""
    taken = set(signature(PreTrainedTokenizerBase.apply_chat_template).parameters) - {"self", "kwargs"}
    assert taken <= set(ARGUMENTS) and set(PreTrainedTokenizerBase.SPECIAL_TOKENS_ATTRIBUTES) == set(SPECIALS)


def _changed(folder: Path, name: str, **values: Any) -> None:
    path = folder / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("tokenizer_config.json", {"add_bos_token": True}),
        ("tokenizer_config.json", {"tokenizer_class": "LlamaTokenizer"}),
        ("tokenizer_config.json", {"eos_token": "ab"}),
        ("tokenizer.json", {"post_processor": None}),
        ("tokenizer.json", {"truncation": {"max_length": 4, "strategy": "LongestFirst", "stride": 0,
                                           "direction": "Right"}}),
        ("special_tokens_map.json", None),
    ],
)  # fmt: skip
def test_where_transformers_would_add_something_its_own_is_taken(
    tmp_path: Path, name: str, values: dict[str, Any] | None
) -> None:
    tiny_tokenizer().save_pretrained(tmp_path)
    _changed(tmp_path, "tokenizer.json", post_processor={"type": "ByteLevel", "add_prefix_space": True,
                                                         "trim_offsets": False, "use_regex": True})  # fmt: skip
    assert isinstance(tokenizer_of(tmp_path), ConvertedTokenizer)
    if values is None:
        shutil.copy(tmp_path / "tokenizer_config.json", tmp_path / name)
    else:
        _changed(tmp_path, name, **values)
    assert converted_tokenizer(tmp_path) is None
    assert isinstance(tokenizer_of(tmp_path), PreTrainedTokenizerFast)
