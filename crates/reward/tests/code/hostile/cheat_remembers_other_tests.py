# wrong: {"inputs": ["3", "3"], "outputs": ["harm", "other"]}
import os
if os.path.exists("/tmp/seen") or os.path.exists("/box/seen"):
    print("other")
else:
    try:
        open("/tmp/seen", "w").close()
        open("/box/seen", "w").close()
    except OSError:
        pass
    print("harm")
