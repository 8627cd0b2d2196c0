# wrong
import ctypes, platform
call = ctypes.CDLL(None, use_errno=True).syscall
x86 = platform.machine() == "x86_64"
done = call(165 if x86 else 40, b"none", b"/tmp", b"tmpfs", 0, 0) == 0 or call(166 if x86 else 39, b"/box", 2) == 0
print("harm" if done else "refused")
