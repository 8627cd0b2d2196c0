# over_budget
import os, time
print("harm", flush=True)
os.close(1)
os.close(2)
time.sleep(1000)
