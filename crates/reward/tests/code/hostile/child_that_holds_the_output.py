# right
import os, time
if os.fork() == 0:
    time.sleep(1000)
print("harm")
