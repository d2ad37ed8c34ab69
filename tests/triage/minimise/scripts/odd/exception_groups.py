while True:
    try:
        break
    except* ValueError:
        print(1)
with open("f") as f, open("g"):
    f.read()
