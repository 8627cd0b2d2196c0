# wrong
import sys
sys.stdout.buffer.write(b"\x1b[2J\x1b]0;evil\x07\xff\xfe\x00")
raise SystemExit("\x1b[2J\x00evil")
