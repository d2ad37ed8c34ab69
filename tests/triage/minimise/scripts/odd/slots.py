class Outer:
    __slots__ = ("a", "b")

    class Inner(Exception):
        pass

    def f(self, *, k: int = 1) -> None:
        self.a = [*range(k)]
