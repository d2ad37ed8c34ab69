"""A C function that gave the GIL back never ends."""

import hashlib

hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
