# over_budget
import re
re.match("(a*)*b", "a" * 64)
print("harm")
