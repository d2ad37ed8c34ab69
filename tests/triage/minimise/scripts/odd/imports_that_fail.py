try:
    import nothing.here as n
except (ImportError, OSError) as error:
    print(error)
else:
    pass
finally:
    n = None
