@decorator(1)
@other
class C(Base, metaclass=M):
    x: int = 1
    y: str

    @property
    def p(self):
        return self.x if self.y else {v for v in self}
