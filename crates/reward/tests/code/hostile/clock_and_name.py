# wrong
import ctypes, platform
call = ctypes.CDLL(None, use_errno=True).syscall
x86 = platform.machine() == "x86_64"
import time
try:
    time.clock_settime(time.CLOCK_REALTIME, 0)
    print("harm")
except OSError:
    print("refused")
print("harm" if call(170 if x86 else 161, b"evil", 4) == 0 else "refused")
