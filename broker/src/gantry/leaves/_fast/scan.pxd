# One frame header cut into pieces, without making an object: what the fast path of frames.pyx reads.

cdef enum:
    FIELDS_MAX = 24

cdef struct Text:
    const unsigned char* at
    int length
    bint escaped          # JSON: holds backslashes; only a value that may hold any is ever unescaped
    bint is_wide          # not ASCII: UTF-8, or escapes that mean it

cdef struct Head:
    int code, language, version, opaque, flag
    int fields
    bint remarked         # there is a remark that is not kept
    bint has_remark       # there is one without escapes, which is kept
    Text remark
    Text name[FIELDS_MAX]
    Text value[FIELDS_MAX]

cdef bint scan_json(const unsigned char* at, const unsigned char* end, Head* head) noexcept nogil
cdef bint scan_binary(const unsigned char* at, const unsigned char* end, Head* head) noexcept nogil
cdef bint read_integer(Text text, long long low, long long high, long long* value) noexcept nogil
cdef int unescape(Text text, unsigned char* out) noexcept nogil
cdef const unsigned char* _sequence(const unsigned char* at, const unsigned char* end) noexcept nogil
