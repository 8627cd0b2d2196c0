# wrong
import os, shutil
for path in ("@SECRET@", "/box/hostile.py", "/usr/bin/env"):
    try:
        os.remove(path)
        print("harm")
    except OSError:
        pass
for folder in ("/box", "/etc", "/dev", "/tmp"):
    shutil.rmtree(folder, ignore_errors=True)
