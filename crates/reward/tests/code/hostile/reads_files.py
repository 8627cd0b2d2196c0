# wrong
read = []
for path in ("@SECRET@", "/etc/passwd", "/etc/shadow", "/etc/hostname", "/root/.bashrc", "/var/log/dpkg.log", "/sys/kernel/notes"):
    try:
        read.append(open(path, "rb").read())
    except OSError:
        pass
print("harm" if read else "nothing")
