# What `sockets` calls without a detour through Python.

cpdef tuple decode(object buffer, Py_ssize_t start, Py_ssize_t end)
