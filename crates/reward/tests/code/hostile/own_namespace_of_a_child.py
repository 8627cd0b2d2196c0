# wrong
import ctypes, platform
call = ctypes.CDLL(None, use_errno=True).syscall
x86 = platform.machine() == "x86_64"
import os, signal
child = call(56 if x86 else 220, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
if child == 0:
    os._exit(0)
print("harm" if child > 0 else "refused")
