"""The model of the example: a Qwen2 of random weights (0.3 million), written without torch.

It is made to be learned from within a few dozen updates. One hidden dimension is the same for
every token, so the output layer has something like a bias per token: GRPO can move the share of a
token quickly, and the chance to stop, hence the distribution of response lengths, can be set.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rlinsight.runs.cpu import example_tokenizer as tokenizer

Array = NDArray[np.float32]

_STD = 0.02
# What the layers add to the residual stream stays small, so that the constant dimension stands;
# wider and deeper models add more, and get smaller weights. This is for two layers of 128.
_STD_RESIDUAL = 0.002
_RESIDUAL = ("self_attn.o_proj.weight", "mlp.down_proj.weight")
_CONSTANT_DIMENSION = 0
_CONSTANT_VALUE = 0.2


@dataclass(frozen=True)
class Shape:
    """Sizes of the model; `head_size` 32 is the smallest that vLLM's CPU attention takes."""

    layers: int = 2
    hidden: int = 128
    intermediate: int = 256
    heads: int = 4
    kv_heads: int = 2
    head_size: int = 32
    max_tokens: int = tokenizer.MAX_LENGTH_TOKENS

    @property
    def residual_std(self) -> float:
        """Standard deviation of the weights whose output joins the residual stream."""
        return _STD_RESIDUAL * (128 / self.hidden) * math.sqrt(2 / self.layers)


#: A model that keeps an accelerator busy, by name: `0.6b` has 0.61 billion parameters.
SHAPES: Final = {
    "tiny": Shape(),
    "0.6b": Shape(
        layers=20,
        hidden=1280,
        intermediate=6912,
        heads=20,
        kv_heads=4,
        head_size=64,
        max_tokens=4096,
    ),
}


def write(folder: Path, *, seed: int, mean_length_tokens: float, shape: Shape = Shape()) -> None:
    """Write `config.json`, `generation_config.json` and `model.safetensors`.

    The untrained model stops after `mean_length_tokens` tokens on average; lengths are then
    distributed geometrically: many short, a long tail. The same seed gives the same bytes.
    """
    end, pad = tokenizer.IDS[tokenizer.END], tokenizer.IDS[tokenizer.PAD]
    ends: dict[str, object] = {"eos_token_id": end, "pad_token_id": pad}
    _dump(folder / "config.json", {**_config(shape), **ends})
    _dump(folder / "generation_config.json", ends)
    weights = _weights(shape, np.random.default_rng(seed), mean_length_tokens)
    _write_safetensors(folder / "model.safetensors", weights)


def _config(shape: Shape) -> dict[str, object]:
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "vocab_size": len(tokenizer.VOCABULARY),
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "max_position_embeddings": shape.max_tokens,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": None,
    }


def _weights(
    shape: Shape, random: np.random.Generator, mean_length_tokens: float
) -> Iterator[tuple[str, Array]]:
    def normal(*size: int, std: float = _STD) -> Array:
        return (random.standard_normal(size) * std).astype(np.float32)

    vocabulary = len(tokenizer.VOCABULARY)
    embedding = normal(vocabulary, shape.hidden)
    embedding[:, _CONSTANT_DIMENSION] = _CONSTANT_VALUE
    yield "model.embed_tokens.weight", embedding
    for layer in range(shape.layers):
        for name, size in _layer(shape):
            std = shape.residual_std if name in _RESIDUAL else _STD
            weight = normal(*size, std=std) if len(size) > 1 else _one_dimensional(name, size)
            yield f"model.layers.{layer}.{name}", weight
    yield "model.norm.weight", np.ones(shape.hidden, np.float32)
    head = normal(vocabulary, shape.hidden)
    head[:, _CONSTANT_DIMENSION] = 0.0
    stop = _stop_logit(mean_length_tokens) / _constant_after_norm(shape)
    head[tokenizer.IDS[tokenizer.END], _CONSTANT_DIMENSION] = stop
    yield "lm_head.weight", head


def _layer(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    query, key = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    yield "input_layernorm.weight", (shape.hidden,)
    for name, rows in (("q", query), ("k", key), ("v", key)):
        yield f"self_attn.{name}_proj.weight", (rows, shape.hidden)
        yield f"self_attn.{name}_proj.bias", (rows,)
    yield "self_attn.o_proj.weight", (shape.hidden, query)
    yield "post_attention_layernorm.weight", (shape.hidden,)
    yield "mlp.gate_proj.weight", (shape.intermediate, shape.hidden)
    yield "mlp.up_proj.weight", (shape.intermediate, shape.hidden)
    yield "mlp.down_proj.weight", (shape.hidden, shape.intermediate)


def _one_dimensional(name: str, size: tuple[int, ...]) -> Array:
    fill = np.zeros if name.endswith("bias") else np.ones
    return fill(size, np.float32)


def _stop_logit(mean_length_tokens: float) -> float:
    """Logit that gives the end token probability 1 / mean length beside otherwise equal tokens."""
    others = len(tokenizer.VOCABULARY) - 1
    return math.log(others / (mean_length_tokens - 1))


def _constant_after_norm(shape: Shape) -> float:
    """Value of the constant dimension after the last RMSNorm, the layers' own small part aside."""
    mean_square = (_CONSTANT_VALUE**2 + (shape.hidden - 1) * _STD**2) / shape.hidden
    return _CONSTANT_VALUE / math.sqrt(mean_square)


def _write_safetensors(path: Path, weights: Iterable[tuple[str, Array]]) -> None:
    """Write as bfloat16: 8 bytes header length, JSON header, raw little-endian tensors."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    blobs: list[bytes] = []
    offset = 0
    for name, weight in weights:
        blob = _bfloat16(weight)
        span = [offset, offset + len(blob)]
        header[name] = {"dtype": "BF16", "shape": list(weight.shape), "data_offsets": span}
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(blobs)


def _bfloat16(weight: Array) -> bytes:
    # Round to nearest, ties to even, on the upper half of the float32 bits.
    bits = np.ascontiguousarray(weight).view(np.uint32).astype(np.uint64)
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)
    return (rounded >> 16).astype("<u2").tobytes()


def _dump(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")
