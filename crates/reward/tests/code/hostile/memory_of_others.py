# wrong
import ctypes, platform
call = ctypes.CDLL(None, use_errno=True).syscall
x86 = platform.machine() == "x86_64"
import os
memory = ctypes.create_string_buffer(8)
class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
part = Part(ctypes.addressof(memory), 8)
got = call(310 if x86 else 270, os.getpid(), ctypes.byref(part), 1, ctypes.byref(part), 1, 0)
print("harm" if got > 0 else "refused")
