# wrong
import ctypes, platform
call = ctypes.CDLL(None, use_errno=True).syscall
x86 = platform.machine() == "x86_64"
flags = (0x10000000, 0x00020000, 0x20000000, 0x40000000)
print("harm" if any(call(272 if x86 else 97, flag) == 0 for flag in flags) else "refused")
