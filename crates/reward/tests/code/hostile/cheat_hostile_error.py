# wrong: ["assert f(3) == 9"]
class Worse(Exception):
    def __str__(self): raise Worse
    __repr__ = __str__
def f(n):
    raise Worse
