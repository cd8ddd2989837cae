"""What published heads compute, from their sources: plain torch over whole texts, no cache, their own names.

Every function gives the logits of three drafts `[3, V]` behind a text; `drafts` are the tokens between.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import LlamaConfig, PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

Weights = Mapping[str, Tensor]


@dataclass(frozen=True)
class Text:
    """A target and tokens `[T + 1]`, of which the last was not read yet; states `[T, H]` in transformers' numbers."""

    model: PreTrainedModel
    tokens: Sequence[int]
    drafts: Sequence[int]

    def states(self) -> list[Tensor]:
        given = torch.tensor([list(self.tokens[:-1])])
        return [state[0] for state in self.model(given, output_hidden_states=True, use_cache=False).hidden_states]

    def embedding(self) -> Tensor:
        return self.model.get_input_embeddings().weight

    def output(self) -> Tensor:
        return self.model.lm_head.weight


def part(weights: Weights, prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): weight for name, weight in weights.items() if name.startswith(prefix)}


def layer(weights: Weights, name: str, x: Tensor) -> Tensor:
    return F.linear(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"))


def norm(weights: Weights, name: str, x: Tensor, config: Mapping[str, Any]) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + config["rms_norm_eps"]) * weights[f"{name}.weight"]


def attention(w: Weights, x: Tensor, config: Mapping[str, Any], window: int | None = None) -> Tensor:
    """Causal attention of rows `[n, width]`, at the positions 0 to n - 1; of the last `window` of them."""
    count, heads, kv_heads = len(x), config["num_attention_heads"], config["num_key_value_heads"]
    query, keys, values = (
        layer(w, f"{name}_proj", x).view(count, number, -1).transpose(0, 1)
        for name, number in (("q", heads), ("k", kv_heads), ("v", kv_heads))
    )
    if "q_norm.weight" in w:
        query, keys = norm(w, "q_norm", query, config), norm(w, "k_norm", keys, config)
    rope = config.get("rope_parameters") or {"rope_type": "default", "rope_theta": config["rope_theta"]}
    like = LlamaConfig(head_dim=query.shape[-1], rope_parameters=dict(rope), max_position_embeddings=80)
    cos, sin = LlamaRotaryEmbedding(like)(x[None], torch.arange(count)[None])
    query, keys = (turned[0] for turned in apply_rotary_pos_emb(query[None], keys[None], cos, sin))
    keys, values = (rows.repeat_interleave(heads // kv_heads, 0) for rows in (keys, values))
    scores = query @ keys.transpose(1, 2) / query.shape[-1] ** 0.5
    seen = torch.ones(count, count, dtype=torch.bool).tril()
    if window is not None:
        seen = seen.triu(1 - window)
    scores = scores.masked_fill(~seen, float("-inf"))
    return layer(w, "o_proj", (scores.softmax(-1) @ values).transpose(0, 1).reshape(count, -1))


def decoder(w: Weights, x: Tensor, read: Tensor, config: Mapping[str, Any], window: int | None = None) -> Tensor:
    """x + attention of what is read, then x + SwiGLU of its norm."""
    x = x + attention(part(w, "self_attn."), read, config, window)
    inner = norm(w, "post_attention_layernorm", x, config)
    gate, up = layer(w, "mlp.gate_proj", inner), layer(w, "mlp.up_proj", inner)
    return x + layer(w, "mlp.down_proj", F.silu(gate) * up)


def recurrent(
    text: Text, embedding: Tensor, feature: Tensor, run: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
) -> Tensor:
    """run: embeddings and features `[n, H]` -> logits `[n, V]`, what is fed back `[n, H]`."""
    tokens, found = list(text.tokens[1:]), []
    for draft in (*text.drafts, None):
        logits, state = run(embedding[tokens], feature)
        found.append(logits[-1])
        feature = torch.cat([feature, state[-1:]])
        tokens.append(draft)
    return torch.stack(found)


def medusa(text: Text, config: Mapping[str, Any], w: Weights) -> Tensor:
    found, last = [], text.states()[-1][-1]
    for k in range(3):
        x = last
        for j in range(2):
            x = x + F.silu(layer(w, f"{k}.{j}.linear", x))
        found.append(F.linear(x, w.get(f"{k}.2.weight", text.output())))
    return torch.stack(found)


def hydra(text: Text, config: Mapping[str, Any], w: Weights) -> Tensor:
    found, x = [], text.states()[-1][-1]
    for k, token in enumerate((text.tokens[-1], *text.drafts)):
        x = torch.cat([x, text.embedding()[token]])
        y = layer(w, f"hydra_mlp.{k}.0.res_connection", x) + F.silu(layer(w, f"hydra_mlp.{k}.0.linear", x))
        y = y + F.silu(layer(w, f"hydra_mlp.{k}.1.linear", y))
        found.append(layer(w, f"hydra_lm_head.{k}", y))
    return torch.stack(found)


def eagle(text: Text, config: Mapping[str, Any], w: Weights) -> Tensor:
    def run(embedded: Tensor, feature: Tensor) -> tuple[Tensor, Tensor]:
        x = layer(w, "fc", torch.cat([embedded, feature], -1))
        state = decoder(part(w, "layers.0."), x, x, config)
        return F.linear(state, text.output()), state

    return recurrent(text, w["embed_tokens.weight"], text.states()[-1], run)


def speculators_eagle(text: Text, config: Mapping[str, Any], w: Weights) -> Tensor:
    inner, extra = config["transformer_layer_config"], config["layernorms"]

    def run(embedded: Tensor, feature: Tensor) -> tuple[Tensor, Tensor]:
        embedded = norm(w, "embedding_layernorm", embedded, inner) if extra else embedded
        x = layer(w, "fusion_fc", torch.cat([embedded, feature], -1))
        state = decoder(
            part(w, "transformer."), x, norm(w, "transformer.input_layernorm", x, inner) if extra else x, inner
        )
        return F.linear(norm(w, "pre_lm_head_layernorm", state, inner) if extra else state, text.output()), state

    return recurrent(text, text.embedding(), text.states()[-1], run)


def eagle3(text: Text, config: Mapping[str, Any], w: Weights) -> Tensor:
    """The states that three layers of the target read, low to high, or those that the config names.

    Of several layers the first reads embedding and feature, each later one what the one before gives.
    """
    inner = config.get("transformer_layer_config", config)
    count = text.model.config.num_hidden_layers
    asked = [layer + 1 for layer in config.get("eagle_config", {}).get("eagle_aux_hidden_state_layer_ids", ())]
    asked = asked or config.get("eagle_aux_hidden_state_layer_ids") or sorted({count - 3, count // 2, 2})
    block = "midlayer." if "midlayer.hidden_norm.weight" in w else "layers.0."
    rows = torch.arange(len(w["d2t"])) + w["d2t"] if "d2t" in w else torch.arange(len(w["lm_head.weight"]))
    vocab = text.model.config.vocab_size

    def run(embedded: Tensor, feature: Tensor) -> tuple[Tensor, Tensor]:
        normed = norm(w, f"{block}hidden_norm", feature, inner)
        read = torch.cat([norm(w, f"{block}input_layernorm", embedded, inner), normed], -1)
        base = normed if config.get("norm_before_residual") else feature
        state = decoder(part(w, block), base, read, inner, window_of(inner, 0))
        for number in range(1, inner["num_hidden_layers"] if block == "layers.0." else 1):
            own = part(w, f"layers.{number}.")
            named = "input_layernorm" if "input_layernorm.weight" in own else "hidden_norm"
            state = decoder(own, state, norm(own, named, state, inner), inner, window_of(inner, number))
        last = norm(w, "norm", state, inner)
        drafted = candidates(w, config, last, layer(w, "lm_head", last))
        fed_back = last if config.get("norm_output") else state
        return drafted.new_full((len(state), vocab), float("-inf")).index_copy(1, rows, drafted), fed_back

    states = text.states()
    read = [states[number] for number in asked]
    if config.get("fc_norm"):
        read = [norm(w, f"fc_norm.{place}", state, inner) for place, state in enumerate(read)]
    joined = torch.cat(read, -1)
    feature = layer(w, "fc", norm(w, "input_norm", joined, inner) if config.get("norm_before_fc") else joined)
    return recurrent(text, w.get("embed_tokens.weight", text.embedding()), feature, run)


def candidates(w: Weights, config: Mapping[str, Any], x: Tensor, logits: Tensor) -> Tensor:
    """EAGLE-4: logits of the tokens that the candidate head finds, where there is one."""
    if "efficient_lm_head.weight" not in w:
        return logits
    rough = layer(w, "efficient_lm_head", layer(w, "efficient_lm_head_down_proj", x))
    least = rough.sort(descending=True).values[:, config["efficient_lm_head_config"]["num_candidates"] - 1]
    return logits.masked_fill(rough < least[:, None], float("-inf"))


def window_of(config: Mapping[str, Any], number: int) -> int | None:
    """The window of a layer: as a test lists it, by its type, or of every layer of EAGLE-4."""
    if "windows" in config:
        return config["windows"][number] or None
    four = "LlamaForCausalLMEagle4" in config.get("architectures", ())
    kinds = config.get("layer_types") or ["sliding_attention" if four else "full_attention"] * (number + 1)
    return config["sliding_window"] if kinds[number] == "sliding_attention" else None


def parallel_eagle(text: Text, config: Mapping[str, Any], w: Weights) -> Tensor:
    """All rows at once: those of the text, and two behind them that read the mask token and `mask_hidden`."""
    inner, states = config.get("transformer_layer_config", config), text.states()
    count = text.model.config.num_hidden_layers
    asked = config.get("eagle_aux_hidden_state_layer_ids") or sorted({count - 3, count // 2, 2})
    embedding = w.get("embed_tokens.weight", text.embedding())
    mask = config.get("mask_token_id", config.get("ptd_token_id"))
    tokens = torch.tensor([*text.tokens[1:], mask, mask])
    seen = torch.cat([states[number] for number in asked], -1)
    feature = layer(w, "fc", torch.cat([seen, w["mask_hidden"].view(1, -1).expand(2, -1)]))
    first = "midlayer." if "midlayer.hidden_norm.weight" in w else "layers.0."
    normed = norm(w, f"{first}hidden_norm", feature, inner)
    read = torch.cat([norm(w, f"{first}input_layernorm", embedding[tokens], inner), normed], -1)
    base = normed if config.get("norm_before_residual") else feature
    x = decoder(part(w, first), base, read, inner, window_of(inner, 0))
    for number in range(1, inner["num_hidden_layers"]):
        own = part(w, f"layers.{number}.")
        x = decoder(own, x, norm(own, "input_layernorm", x, inner), inner, window_of(inner, number))
    drafted = layer(w, "lm_head", norm(w, "norm", x[-3:], inner))
    rows = torch.arange(len(w["d2t"])) + w["d2t"]
    return drafted.new_full((3, len(w["t2d"])), float("-inf")).index_copy(1, rows, drafted)


def mtp(text: Text, config: Mapping[str, Any], w: Weights) -> Tensor:
    """DeepSeek-V3's, MiMo's and Qwen's, by which of them the names are."""
    prefix, left, right, fc, last, block = next(
        names
        for names in (
            (f"model.layers.{config['num_hidden_layers']}.", "enorm", "hnorm", "eh_proj", "shared_head.norm", ""),
            ("model.mtp_layers.0.", "token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm", ""),
            ("mtp.", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm", "layers.0."),
        )
        if f"{names[0]}{names[3]}.weight" in w
    )
    own = part(w, prefix)

    def run(embedded: Tensor, feature: Tensor) -> tuple[Tensor, Tensor]:
        halves = [norm(own, left, embedded, config), norm(own, right, feature, config)]
        x = layer(own, fc, torch.cat(halves[::-1] if fc == "input_proj" else halves, -1))
        inner = part(own, block)
        state = norm(own, last, decoder(inner, x, norm(inner, "input_layernorm", x, config), config), config)
        return F.linear(state, own.get("shared_head.head.weight", text.output())), state

    return recurrent(text, own.get("embed_tokens.weight", text.embedding()), text.states()[-1], run)


def one_pass(text: Text, config: Mapping[str, Any], w: Weights) -> Tensor:
    """DFlash's and DSpark's block: [last token, masks], which sees the text and itself, then the Markov head."""
    inner, own = config.get("transformer_layer_config", config), config.get("dflash_config", config)
    layers = own.get("target_layer_ids") or [number - 1 for number in config["aux_hidden_state_layer_ids"]]
    states, embedding = text.states(), w.get("embed_tokens.weight", text.embedding())
    feature = layer(w, "fc", torch.cat([states[number + 1] for number in layers], -1))
    read = norm(w, "hidden_norm", feature, inner)
    spark = "markov_head.markov_w1.weight" in w
    x = embedding[[text.tokens[-1], *[own.get("mask_token_id", config.get("mask_token_id"))] * (2 if spark else 3)]]
    for number in range(inner["num_hidden_layers"]):
        block = part(w, f"layers.{number}.")
        x = beside(block, x, read, inner)
    rows = norm(w, "norm", x, inner)
    logits = F.linear(rows if spark else rows[1:], w.get("lm_head.weight", text.output()))
    if spark:
        before = w["markov_head.markov_w1.weight"][[text.tokens[-1], *text.drafts]]
        logits = logits + layer(w, "markov_head.markov_w2", before)
    if "d2t" not in w:
        return logits
    ids = torch.arange(len(w["d2t"])) + w["d2t"]
    return logits.new_full((3, len(w["t2d"])), float("-inf")).index_copy(1, ids, logits)


def beside(w: Weights, x: Tensor, read: Tensor, config: Mapping[str, Any]) -> Tensor:
    """A decoder layer whose rows `[n, H]` stand behind a text of which keys and values come from `read` `[T, H]`."""
    heads, kv_heads, count = config["num_attention_heads"], config["num_key_value_heads"], len(read) + len(x)
    normed = norm(w, "input_layernorm", x, config)
    own = part(w, "self_attn.")
    query = layer(own, "q_proj", normed).view(len(x), heads, -1).transpose(0, 1)
    keys, values = (
        torch.cat([layer(own, name, read), layer(own, name, normed)]).view(count, kv_heads, -1).transpose(0, 1)
        for name in ("k_proj", "v_proj")
    )
    if "q_norm.weight" in own:
        query, keys = norm(own, "q_norm", query, config), norm(own, "k_norm", keys, config)
    rope = {"rope_type": "default", "rope_theta": config["rope_theta"]}
    like = LlamaConfig(head_dim=query.shape[-1], rope_parameters=rope, max_position_embeddings=80)
    cos, sin = LlamaRotaryEmbedding(like)(x[None], torch.arange(count)[None])
    keys = apply_rotary_pos_emb(keys[None], keys[None], cos, sin)[1][0]
    query = apply_rotary_pos_emb(query[None], query[None], cos[:, len(read) :], sin[:, len(read) :])[0][0]
    keys, values = (rows.repeat_interleave(heads // kv_heads, 0) for rows in (keys, values))
    weights = (query @ keys.transpose(1, 2) / query.shape[-1] ** 0.5).softmax(-1)
    x = x + layer(own, "o_proj", (weights @ values).transpose(0, 1).reshape(len(x), -1))
    mlp = norm(w, "post_attention_layernorm", x, config)
    return x + layer(w, "mlp.down_proj", F.silu(layer(w, "mlp.gate_proj", mlp)) * layer(w, "mlp.up_proj", mlp))
