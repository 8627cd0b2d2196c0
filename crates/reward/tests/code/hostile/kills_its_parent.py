# wrong
import os, signal
for number in (@PARENT@, os.getppid(), 1):
    for kind in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP):
        try:
            os.kill(number, kind)
        except OSError:
            pass
try:
    os.killpg(@PARENT@, signal.SIGKILL)
except OSError:
    pass
print("alive")
