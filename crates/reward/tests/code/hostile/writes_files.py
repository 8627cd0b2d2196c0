# wrong
import os
written = 0
for path in ("@SECRET@", "/x", "/box/x", "/box/hostile.py", "/etc/passwd", "/usr/x", "/usr/bin/python3", "/root/x", "/dev/x"):
    try:
        with open(path, "w") as file:
            file.write("harm")
        written += 1
    except OSError:
        pass
print("harm" if written else "nothing")
