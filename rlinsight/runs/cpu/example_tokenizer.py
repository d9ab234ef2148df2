"""The tokenizer of the example: one token per character, in the files transformers reads.

transformers rebuilds the tokenizer of a Qwen2 model from its vocabulary, with Qwen2's byte-level
pipeline around it; so that is what these files describe.
"""

from __future__ import annotations

import json
import string
from pathlib import Path

PAD, START, END, UNKNOWN = "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|unk|>"
SPECIAL = (PAD, START, END, UNKNOWN)
# Byte-level names of the newline and the space; other ASCII characters stand for themselves.
_NEWLINE, _SPACE = "\u010a", "\u0120"
_CHARACTERS = _NEWLINE + string.digits + _SPACE + "+-*=.,:?!" + string.ascii_lowercase

#: Every token, in the order of its id. The model's vocabulary is exactly this: verl masks what
#: lies beyond the tokenizer in vLLM but not in the trainer, and their log-probs would disagree.
VOCABULARY = (*SPECIAL, *_CHARACTERS)
IDS = {token: index for index, token in enumerate(VOCABULARY)}

MAX_LENGTH_TOKENS = 1024

_CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": False,
    "use_regex": False,
}


def write(folder: Path) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json` into an existing folder."""
    _dump(folder / "tokenizer.json", _tokenizer())
    _dump(folder / "tokenizer_config.json", _config())


def _tokenizer() -> dict[str, object]:
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_special(token) for token in SPECIAL],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": _BYTE_LEVEL,
        "post_processor": None,
        "decoder": _BYTE_LEVEL,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": UNKNOWN,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": IDS,
            "merges": [],
        },
    }


def _special(token: str) -> dict[str, object]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": IDS[token], "content": token, **flags, "special": True}


def _config() -> dict[str, object]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": PAD,
        "unk_token": UNKNOWN,
        "model_max_length": MAX_LENGTH_TOKENS,
        "clean_up_tokenization_spaces": False,
        "chat_template": _CHAT_TEMPLATE,
    }


def _dump(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")
