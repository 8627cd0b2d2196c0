"""Right is one English-looking word of three to twelve letters that begins with the letter of the question."""

import json
import re
import sys


def score(question: str, completion: str, finish: str) -> float:
    letter = question.rstrip(".")[-1]
    word = re.fullmatch(r"([A-Za-z]{3,12})\.?", completion.strip())
    return float(finish == "stop" and word is not None and word[1][0].upper() == letter)


for line in sys.stdin:
    row = json.loads(line)
    worth = score(row["question"], row["completion"], row["finish"])
    print(json.dumps({"id": row["id"], "score": worth, "extracted": row["completion"]}), flush=True)
