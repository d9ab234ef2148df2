"""How many tokens were trained where the lengths of some samples are not known."""

from __future__ import annotations


def tokens_of_all(known_tokens: int, known: int, samples: int) -> int | None:
    """Return the tokens of `samples`, of which `known` have a length and hold `known_tokens`.

    Those without one are taken to be as long as the others: to leave them out would count them
    as empty. None where no length is known. Worked example: 4 samples, of which 2 hold 200
    tokens together: 400.
    """
    if not known:
        return None if samples else 0
    return round(known_tokens * samples / known)
