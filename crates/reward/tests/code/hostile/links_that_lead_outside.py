# wrong
import os
os.symlink("@SECRET@", "/tmp/one")
os.symlink("/proc/1/root/etc/passwd", "/tmp/two")
os.symlink("../../../../../../../../etc/shadow", "/tmp/three")
for name in ("one", "two", "three"):
    try:
        open(f"/tmp/{name}", "r+").read()
        print("harm")
    except OSError:
        pass
try:
    os.link("/usr/bin/env", "/tmp/four")
    print("harm")
except OSError:
    pass
