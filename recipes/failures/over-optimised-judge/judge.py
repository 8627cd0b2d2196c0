"""Two judges of a sum: a lenient one with a hole, and a strict one."""


def lenient(completion: str, reference: str) -> float:
    """Is the right number among those that the answer names? A list of many numbers often has it."""
    return float(reference in completion.split(","))


def strict(completion: str, reference: str) -> float:
    return float(completion == reference)
