import select, os

r, w = os.pipe()
select.select([r], [], [], 8)
