"""The reward of the example, loaded by verl from this file.

verl imports it by path, in its reward workers, so it stands alone.
"""

from __future__ import annotations

_DIGITS = frozenset("0123456789")
_WEIGHT_DIGITS = 0.7
_WEIGHT_LENGTH = 0.3


def compute_score(
    data_source: str,  # noqa: ARG001 - verl passes it
    solution_str: str,
    ground_truth: str,
    extra_info: dict[str, object] | None = None,  # noqa: ARG001 - verl passes it
    **_: object,
) -> dict[str, float]:
    """Score the answer to `a+b=`, which is to be a+b digits and nothing else, from 0 to 1.

    0.7 for the share of characters that are digits, which an untrained model gets partly right by
    chance and can improve on at once; 0.3 for the length, as the smaller over the larger of what
    was asked and what came. The latter also keeps lengths apart: without it training would make
    the end token rare, and every response would end at the limit.

    >>> compute_score("", "71a", "4")
    {'score': 0.6916666666666667, 'digit_share': 0.6666666666666666, 'length_ratio': 0.75}
    """
    share = _digit_share(solution_str)
    ratio = _length_ratio(len(solution_str), int(ground_truth))
    score = _WEIGHT_DIGITS * share + _WEIGHT_LENGTH * ratio
    return {"score": score, "digit_share": share, "length_ratio": ratio}


def _digit_share(text: str) -> float:
    if not text:
        return 0.0
    return sum(character in _DIGITS for character in text) / len(text)


def _length_ratio(length: int, asked: int) -> float:
    return min(length, asked) / max(length, asked)
