"""A C function that gave the GIL back takes a mutex that it has already."""

import ctypes

mutex = ctypes.create_string_buffer(64)
library = ctypes.CDLL(None)
library.pthread_mutex_init(mutex, None)
library.pthread_mutex_lock(mutex)
library.pthread_mutex_lock(mutex)
