# wrong
import ctypes, platform
call = ctypes.CDLL(None, use_errno=True).syscall
x86 = platform.machine() == "x86_64"
numbers = (321, 298, 425, 323, 250) if x86 else (280, 241, 425, 282, 219)
done = [call(number, 0, 0, 0, 0, 0) for number in numbers]
print("harm" if any(ctypes.get_errno() != 38 for _ in done) else "refused")
