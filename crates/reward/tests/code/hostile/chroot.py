# wrong
import ctypes, platform
call = ctypes.CDLL(None, use_errno=True).syscall
x86 = platform.machine() == "x86_64"
import os
try:
    os.chroot("/tmp")
    print("harm")
except OSError:
    print("refused")
