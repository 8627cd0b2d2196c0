# over_budget
import os, signal
os.kill(os.getpid(), signal.SIGSTOP)
print("harm")
