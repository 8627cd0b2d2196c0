# wrong
import socket
reached = 0
for family, kind, address in (
    (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", @PORT@)),
    (socket.AF_INET, socket.SOCK_DGRAM, ("8.8.8.8", 53)),
    (socket.AF_INET6, socket.SOCK_STREAM, ("::1", @PORT@)),
    (socket.AF_UNIX, socket.SOCK_STREAM, "\0abstract"),
    (socket.AF_NETLINK, socket.SOCK_RAW, (0, 0)),
):
    try:
        it = socket.socket(family, kind)
        reached += 1
        it.connect(address)
        it.send(b"x")
    except OSError:
        pass
print("harm" if reached else "nothing")
