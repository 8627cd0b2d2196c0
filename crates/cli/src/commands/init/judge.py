"""An answer is right if it has two to six letters and begins with the word's first letter.

Firebrick writes one completion a line, as JSON: the row's question, what the model read (prompt), the row's
answer if it has one (reference), the completion, and how it ended (finish: stop or length). It reads one line of JSON back.
Print anything else to sys.stderr.
"""

import json
import re
import sys


def score(question: str, completion: str, finish: str = "stop") -> float:
    """Returns the worth of a completion, from 0 to 1."""
    if finish != "stop" or not re.fullmatch("[a-z]{2,6}", completion):
        return 0.0
    return float(completion[0] == question[0])


def main() -> None:
    for line in sys.stdin:
        row = json.loads(line)
        worth = score(row["question"], row["completion"], row["finish"])
        answer = {"id": row["id"], "score": worth, "extracted": row["completion"]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
