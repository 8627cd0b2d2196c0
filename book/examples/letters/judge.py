"""Right is one English-looking word of three to twelve letters that begins with the letter of the question."""

import re


def score(question: str, completion: str, finish: str) -> float:
    letter = question.rstrip(".")[-1]
    word = re.fullmatch(r"([A-Za-z]{3,12})\.?", completion.strip())
    return float(finish == "stop" and word is not None and word[1][0].upper() == letter)
