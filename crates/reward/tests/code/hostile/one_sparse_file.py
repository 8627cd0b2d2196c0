# wrong
import os, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
try:
    os.truncate("/tmp/x", 1 << 40) if os.open("/tmp/x", os.O_CREAT | os.O_RDWR) else None
    print("harm")
except OSError:
    print("limited")
