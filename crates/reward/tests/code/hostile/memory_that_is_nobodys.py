# wrong
import ctypes, os
held = 0
for number in range(24):
    try:
        file = os.memfd_create("x")
        held += os.write(file, b"x" * (16 << 20))
    except OSError:
        pass
library = ctypes.CDLL(None)
for number in range(24):
    if library.shmget(0, 16 << 20, 0o1600) >= 0:
        held += 16 << 20
print("harm" if held else "refused")
