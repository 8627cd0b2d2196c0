# wrong
import socket
try:
    print("harm" if socket.gethostbyname("localhost") else "")
except OSError:
    print("nothing")
