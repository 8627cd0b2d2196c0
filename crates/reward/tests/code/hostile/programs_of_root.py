# wrong
import ctypes, platform
call = ctypes.CDLL(None, use_errno=True).syscall
x86 = platform.machine() == "x86_64"
import subprocess
for command in (["su", "-c", "echo harm"], ["mount", "-t", "tmpfs", "none", "/tmp"], ["unshare", "-Ur", "echo", "harm"], ["passwd", "-d", "root"]):
    try:
        print(subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout)
    except OSError:
        pass
