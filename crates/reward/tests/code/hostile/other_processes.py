# wrong
import glob, os
found = glob.glob("/proc/*/mem") + glob.glob("/proc/self/environ")
for number in [@PARENT@, *range(3, 5000)]:
    try:
        if number != os.getpid():
            os.kill(number, 0)
            found.append(number)
    except OSError:
        pass
print("harm" if found else "nothing")
