# wrong
import fcntl, os, termios
typed = 0
for number in (0, 1, 2):
    try:
        fcntl.ioctl(number, termios.TIOCSTI, b"x")
        typed += 1
    except OSError:
        pass
print("harm" if typed else "refused")
