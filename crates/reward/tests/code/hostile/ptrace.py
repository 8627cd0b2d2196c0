# wrong
import ctypes, platform
call = ctypes.CDLL(None, use_errno=True).syscall
x86 = platform.machine() == "x86_64"
print("harm" if call(101 if x86 else 117, 16, @PARENT@, 0, 0) == 0 or call(101 if x86 else 117, 0, 0, 0, 0) == 0 else "refused")
