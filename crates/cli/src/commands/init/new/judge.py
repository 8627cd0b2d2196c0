"""An answer is right if it has two to six letters and begins with the word's first letter."""

import re


def score(question: str, completion: str, finish: str) -> float:
    """Returns what a completion is worth, from 0 to 1. `finish` is "length" if it was cut off, and else "stop"."""
    if finish != "stop" or not re.fullmatch("[a-z]{2,6}", completion):
        return 0.0
    return float(completion[0] == question[0])
