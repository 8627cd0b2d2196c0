# wrong
import sys
for _ in range(10 * 1024):
    sys.stderr.write("x" * (1 << 20))
print("harm")
