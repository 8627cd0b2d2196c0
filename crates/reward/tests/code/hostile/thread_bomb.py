# wrong
import threading, time
threads = 0
try:
    while threads < 1000:
        threading.Thread(target=time.sleep, args=(2,), daemon=True).start()
        threads += 1
except RuntimeError:
    pass
print("harm" if threads > 100 else "limited")
