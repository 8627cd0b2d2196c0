"""An answer is right if the first fraction in it is the larger one."""

import re


def score(completion: str, reference: str) -> float:
    found = re.search(r"\d+/\d+", completion)
    return float(found is not None and found[0] == reference)
