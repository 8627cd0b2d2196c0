# wrong
import os, time
children = 0
try:
    while children < 1000:
        if os.fork() == 0:
            time.sleep(3)
            os._exit(0)
        children += 1
except OSError:
    pass
print("harm" if children > 100 else "limited")
