"""An answer is right if its last number is within one per cent of the reference."""

import json
import re
import sys

NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")

for line in sys.stdin:
    row = json.loads(line)
    wanted = float(row["reference"])
    numbers = NUMBER.findall(row["completion"][-1000:])
    if numbers:
        near = abs(float(numbers[-1]) - wanted) <= 0.01 * abs(wanted)
        answer = {"score": float(near), "extracted": numbers[-1]}
    else:
        answer = {"verdict": "unparsable"}
    print(json.dumps({"id": row["id"], **answer}), flush=True)
