# wrong
import ctypes, platform
call = ctypes.CDLL(None, use_errno=True).syscall
x86 = platform.machine() == "x86_64"
import os, stat
made = 0
for kind, number in ((stat.S_IFBLK, os.makedev(254, 0)), (stat.S_IFCHR, os.makedev(1, 1))):
    try:
        os.mknod(f"/tmp/{number}", kind | 0o666, number)
        made += 1
    except OSError:
        pass
for path in ("/dev/mem", "/dev/kmsg", "/dev/vda", "/dev/sda", "/dev/fuse", "/dev/kvm", "/dev/nvidia0", "/dev/tty", "/dev/ptmx"):
    try:
        open(path, "rb")
        made += 1
    except OSError:
        pass
print("harm" if made else "nothing")
