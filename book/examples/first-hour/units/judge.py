"""An answer is right if its last number is the reference."""

import re


def score(completion: str, reference: str) -> float:
    numbers = re.findall(r"\d+(?:\.\d+)?", completion.replace(",", ""))
    return float(bool(numbers) and float(numbers[-1]) == float(reference))
