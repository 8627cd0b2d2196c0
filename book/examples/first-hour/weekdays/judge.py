"""An answer is right if it ends with the reference, and names at most the day that it was asked about besides."""

import re

DAYS = "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday"


def score(question: str, completion: str, reference: str) -> float:
    asked = re.findall(DAYS, question)
    named = re.findall(DAYS, completion)
    others = set(named) - set(asked) - {reference}
    return float(bool(named) and named[-1] == reference and not others)
