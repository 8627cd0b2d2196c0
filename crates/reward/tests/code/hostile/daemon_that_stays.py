# right
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.close(1)
        os.close(2)
        time.sleep(1000)
    os._exit(0)
print("harm")
