match point:
    case (0, y) if y:
        print(y)
    case {"a": 1, **rest}:
        pass
    case _:
        x = 1
