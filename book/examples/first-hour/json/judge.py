"""An answer earns a tenth for being a JSON object, and three tenths for each value that is right, in capitals or not."""

import json


def score(completion: str, reference: dict) -> float:
    try:
        found = json.loads(completion.strip().removeprefix("```json").removesuffix("```"))
    except ValueError:
        return 0.0
    if not isinstance(found, dict):
        return 0.0
    right = [str(found.get(key)).lower() == str(value).lower() for key, value in reference.items()]
    return round(0.1 + 0.3 * sum(right), 1)
