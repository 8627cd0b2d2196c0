"""An answer earns a tenth for being a JSON object, and three tenths for each value that is right."""

import json


def score(completion: str, reference: str) -> float:
    try:
        found = json.loads(completion.strip().removeprefix("```json").removesuffix("```"))
    except ValueError:
        return 0.0
    if not isinstance(found, dict):
        return 0.0
    expected = json.loads(reference)
    return round(0.1 + 0.3 * sum(found.get(key) == value for key, value in expected.items()), 1)
