"""An answer is right if it is one word that begins with the letter of the question."""

import re


def score(question: str, completion: str, reference: str) -> float:
    """Returns what a completion is worth, from 0 to 1. `reference` is the row's answer: here, the letter."""
    word = re.fullmatch(r"([A-Za-z]{3,12})[.!]?", completion.strip())
    return float(word is not None and word[1][0].upper() == reference)
