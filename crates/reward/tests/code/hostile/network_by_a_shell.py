# wrong
import os
os.system("exec 3<>/dev/tcp/127.0.0.1/@PORT@ && echo harm; bash -c 'echo x >/dev/tcp/127.0.0.1/@PORT@ && echo harm'")
