"""A C function that keeps the GIL takes a mutex that it has already."""

import ctypes

mutex = ctypes.create_string_buffer(64)
library = ctypes.PyDLL(None)  # unlike CDLL, keeps the GIL
library.pthread_mutex_init(mutex, None)
library.pthread_mutex_lock(mutex)
library.pthread_mutex_lock(mutex)
