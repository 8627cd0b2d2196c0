# wrong
import os
written = 0
try:
    for number in range(1000):
        with open(f"/tmp/{number}", "wb") as file:
            written += file.write(b"x" * (1 << 20))
except OSError:
    pass
print("harm" if written > 128 << 20 else "limited")
