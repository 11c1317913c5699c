from gantry.leaves._fast.requests cimport Send

cdef object scan_into(Send send, bytes properties)
cdef bint is_ascii(const unsigned char* at, Py_ssize_t length) noexcept nogil
cdef long long java_hash_ascii(const unsigned char* at, Py_ssize_t length) noexcept nogil
cdef bint java_hash_utf8(unsigned int* hashed, const unsigned char* at, Py_ssize_t length) noexcept nogil
cdef list pick_in(const unsigned char* at, const unsigned char* end, tuple names)
