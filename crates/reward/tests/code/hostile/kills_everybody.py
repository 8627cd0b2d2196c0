# wrong
import os, signal
try:
    os.kill(-1, signal.SIGTERM)
except OSError:
    pass
print("alive")
