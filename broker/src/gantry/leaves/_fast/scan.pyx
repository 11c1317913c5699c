# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Cutting frame headers into names and values without making a Python object.

The scanners know a *subset* of what `leaves.headers` accepts: what clients really send, flat, without blanks, each key
once, and names in ASCII; a value may be any UTF-8 (`is_wide` says that it is not ASCII).  They answer False for everything else, and the caller lets the pure code decide: valid or not,
its answer counts.  So being strict here is always right, and the two twins agree on every input by construction.

Each step checks the end before it reads a byte; nothing outside [at, end) is touched.
"""

from libc.string cimport memchr, memcmp, memset

cdef const char** LANGUAGES = ["JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST", "NODE_JS"]
cdef int* LANGUAGE_LENGTHS = [4, 3, 6, 6, 6, 6, 4, 5, 4, 2, 3, 3, 4, 7]

cdef enum:
    KEY_CODE = 1
    KEY_LANGUAGE = 2
    KEY_VERSION = 4
    KEY_OPAQUE = 8
    KEY_FLAG = 16
    KEY_FIELDS = 32
    KEY_SERIALIZATION = 64
    KEY_REMARK = 128


cdef inline bint _is(Text text, const char* word, int length) noexcept nogil:
    return text.length == length and memcmp(text.at, word, <size_t>length) == 0


cdef int _hex(unsigned char byte) noexcept nogil:
    if c"0" <= byte <= c"9":
        return byte - c"0"
    byte |= 0x20
    if c"a" <= byte <= c"f":
        return byte - c"a" + 10
    return -1


cdef const unsigned char* _string(const unsigned char* at, const unsigned char* end, Text* text) noexcept nogil:
    """Behind the closing quote of the string that starts at `at`, or NULL."""
    cdef unsigned char byte
    if at >= end or at[0] != c'\"':
        return NULL
    at += 1
    text.at = at
    text.escaped = text.is_wide = False
    while at < end:
        byte = at[0]
        if byte == c'\"':
            text.length = <int>(at - text.at)
            return at + 1
        if byte < 0x20:
            return NULL
        if byte >= 0x80:
            text.is_wide = True
            at = _sequence(at, end)
            if at == NULL:
                return NULL
        elif byte == c"\\":
            text.escaped = True
            at = _escape(at + 1, end, &text.is_wide)
            if at == NULL:
                return NULL
        at += 1
    return NULL


cdef const unsigned char* _sequence(const unsigned char* at, const unsigned char* end) noexcept nogil:
    """The last byte of the UTF-8 sequence of a character beyond ASCII that starts here, or NULL when it is none."""
    cdef unsigned char first = at[0], low = 0x80, high = 0xBF
    cdef int more, i
    if 0xC2 <= first <= 0xDF:
        more = 1
    elif 0xE0 <= first <= 0xEF:
        more = 2
        if first == 0xE0:
            low = 0xA0
        elif first == 0xED:
            high = 0x9F  # no surrogates
    elif 0xF0 <= first <= 0xF4:
        more = 3
        if first == 0xF0:
            low = 0x90
        elif first == 0xF4:
            high = 0x8F
    else:
        return NULL
    if end - at <= more or at[1] < low or at[1] > high:
        return NULL
    for i in range(2, more + 1):
        if at[i] & 0xC0 != 0x80:
            return NULL
    return at + more


cdef inline int _unit(const unsigned char* at) noexcept nogil:
    """The number of the four hexadecimal digits here, or -1."""
    cdef int a = _hex(at[0]), b = _hex(at[1]), c = _hex(at[2]), d = _hex(at[3])
    if a < 0 or b < 0 or c < 0 or d < 0:
        return -1
    return a << 12 | b << 8 | c << 4 | d


cdef const unsigned char* _escape(const unsigned char* at, const unsigned char* end, bint* is_wide) noexcept nogil:
    """The last byte of the escape behind a backslash, or NULL when it is none, or a surrogate that stands alone."""
    cdef int unit
    if at >= end:
        return NULL
    if at[0] == c"u":
        unit = _unit(at + 1) if end - at >= 5 else -1
        if unit < 0 or 0xDC00 <= unit <= 0xDFFF:
            return NULL
        if unit >= 0x80:
            is_wide[0] = True
        if 0xD800 <= unit <= 0xDBFF:
            if end - at < 11 or at[5] != c"\\" or at[6] != c"u" or _unit(at + 7) & ~0x3FF != 0xDC00:
                return NULL
            return at + 10
        return at + 4
    return at if memchr(b'bfnrt"/\\', at[0], 8) != NULL else NULL


cdef const unsigned char* _number(const unsigned char* at, const unsigned char* end, Text* text) noexcept nogil:
    """Behind the integer that starts at `at`, or NULL; no leading zeros, as JSON wants it."""
    text.at = at
    text.escaped = text.is_wide = False
    if at < end and at[0] == c"-":
        at += 1
    if at >= end or at[0] < c"0" or at[0] > c"9":
        return NULL
    if at[0] == c"0" and at + 1 < end and c"0" <= at[1] <= c"9":
        return NULL
    while at < end and c"0" <= at[0] <= c"9":
        at += 1
    if at < end and (at[0] == c"." or at[0] == c"e" or at[0] == c"E"):
        return NULL
    text.length = <int>(at - text.at)
    return at


cdef const unsigned char* _scalar(const unsigned char* at, const unsigned char* end, Text* text) noexcept nogil:
    """Behind a string, integer, true or false; null and everything else is NULL."""
    if at >= end:
        return NULL
    if at[0] == c'\"':
        return _string(at, end, text)
    text.at = at
    text.escaped = text.is_wide = False
    if end - at >= 4 and memcmp(at, b"true", 4) == 0:
        text.length = 4
        return at + 4
    if end - at >= 5 and memcmp(at, b"false", 5) == 0:
        text.length = 5
        return at + 5
    return _number(at, end, text)


cdef bint read_integer(Text text, long long low, long long high, long long* value) noexcept nogil:
    """The integer of a text of at most 18 digits; longer or odd ones are for the pure code."""
    cdef int i = 0
    cdef bint negative = False
    cdef long long result = 0
    if text.length > 0 and text.at[0] == c"-":
        negative = True
        i = 1
    if text.length - i < 1 or text.length - i > 18:
        return False
    while i < text.length:
        if text.at[i] < c"0" or text.at[i] > c"9":
            return False
        result = result * 10 + (text.at[i] - c"0")
        i += 1
    if negative:
        result = -result
    value[0] = result
    return low <= result <= high


cdef bint _read_int(Text text, int* value) noexcept nogil:
    cdef long long wide = 0
    if not read_integer(text, -0x80000000, 0x7FFFFFFF, &wide):
        return False
    value[0] = <int>wide
    return True


cdef bint _read_language(Text text, int* language) noexcept nogil:
    cdef int i
    for i in range(14):
        if _is(text, LANGUAGES[i], LANGUAGE_LENGTHS[i]):
            language[0] = i
            return True
    return False


cdef bint _same_name_before(Head* head, Text name) noexcept nogil:
    cdef int i
    for i in range(head.fields):
        if head.name[i].length == name.length and memcmp(head.name[i].at, name.at, <size_t>name.length) == 0:
            return True
    return False


cdef const unsigned char* _fields(const unsigned char* at, const unsigned char* end, Head* head) noexcept nogil:
    """Behind the object of extFields, or NULL."""
    cdef Text name, value
    if at >= end or at[0] != c"{":
        return NULL
    at += 1
    if at < end and at[0] == c"}":
        return at + 1
    while True:
        at = _string(at, end, &name)
        if at == NULL or name.escaped or name.is_wide or at >= end or at[0] != c":":
            return NULL
        at = _scalar(at + 1, end, &value)
        if at == NULL or at >= end or head.fields == FIELDS_MAX or _same_name_before(head, name):
            return NULL
        head.name[head.fields] = name
        head.value[head.fields] = value
        head.fields += 1
        if at[0] == c"}":
            return at + 1
        if at[0] != c",":
            return NULL
        at += 1


cdef int _key(Text name) noexcept nogil:
    if _is(name, "code", 4):
        return KEY_CODE
    if _is(name, "opaque", 6):
        return KEY_OPAQUE
    if _is(name, "flag", 4):
        return KEY_FLAG
    if _is(name, "version", 7):
        return KEY_VERSION
    if _is(name, "language", 8):
        return KEY_LANGUAGE
    if _is(name, "extFields", 9):
        return KEY_FIELDS
    if _is(name, "serializeTypeCurrentRPC", 23):
        return KEY_SERIALIZATION
    if _is(name, "remark", 6):
        return KEY_REMARK
    return 0


cdef bint _take(int key, Text text, Head* head) noexcept nogil:
    """One value of the header other than extFields."""
    if text.escaped or text.is_wide:
        return False
    if key == KEY_CODE:
        return _read_int(text, &head.code)
    if key == KEY_OPAQUE:
        return _read_int(text, &head.opaque)
    if key == KEY_FLAG:
        return _read_int(text, &head.flag)
    if key == KEY_VERSION:
        return _read_int(text, &head.version)
    if key == KEY_LANGUAGE:
        return _read_language(text, &head.language)
    return key == KEY_SERIALIZATION or key == KEY_REMARK  # neither changes what a hot request means


cdef bint scan_json(const unsigned char* at, const unsigned char* end, Head* head) noexcept nogil:
    """Whether this header is one of the subset; then `head` says what is in it."""
    cdef Text name, value
    cdef int key, seen = 0
    memset(head, 0, 20)
    head.fields = 0
    head.remarked = head.has_remark = False
    head.language = 7
    if at >= end or at[0] != c"{":
        return False
    while True:
        at = _string(at + 1, end, &name)
        if at == NULL or name.escaped or name.is_wide or at >= end or at[0] != c":":
            return False
        key = _key(name)
        if key == 0 or seen & key:
            return False
        seen |= key
        if key == KEY_REMARK:
            head.remarked = at + 1 >= end or at[1] != c'"'
            head.has_remark = not head.remarked
        if key == KEY_FIELDS:
            at = _fields(at + 1, end, head)
        else:
            at = _scalar(at + 1, end, &value)
            if at == NULL or not _take(key, value, head):
                return False
            if key == KEY_REMARK and head.has_remark:
                head.remark = value
                head.remarked = value.escaped
        if at == NULL or at >= end:
            return False
        if at[0] == c"}":
            break
        if at[0] != c",":
            return False
    at += 1
    while at < end and (at[0] == c"\n" or at[0] == c" " or at[0] == c"\r" or at[0] == c"\t"):
        at += 1  # C++ clients end the header with a line feed
    return at == end and seen & KEY_CODE != 0


cdef inline int _i32(const unsigned char* at) noexcept nogil:
    return <int>((<unsigned int>at[0] << 24) | (<unsigned int>at[1] << 16) | (<unsigned int>at[2] << 8) | at[3])


cdef inline int _i16(const unsigned char* at) noexcept nogil:
    return <int><short>((<unsigned int>at[0] << 8) | at[1])


cdef bint _is_text(const unsigned char* at, int length) noexcept nogil:
    """Whether these bytes are UTF-8."""
    cdef const unsigned char* end = at + length
    while at < end:
        if at[0] >= 0x80:
            at = _sequence(at, end)
            if at == NULL:
                return False
        at += 1
    return True


cdef bint _is_ascii(const unsigned char* at, int length) noexcept nogil:
    cdef int i
    cdef unsigned char seen = 0
    for i in range(length):
        seen |= at[i]
    return seen < 0x80


cdef bint scan_binary(const unsigned char* at, const unsigned char* end, Head* head) noexcept nogil:
    """The same for a ROCKETMQ header: no remark, every field with a value."""
    cdef int length
    cdef Text name, value
    head.fields = 0
    head.remarked = head.has_remark = False
    if end - at < 21:
        return False
    head.code = _i16(at)
    head.language = at[2]
    head.version = _i16(at + 3)
    head.opaque = _i32(at + 5)
    head.flag = _i32(at + 9)
    if head.language > 13 or _i32(at + 13) != 0 or _i32(at + 17) != end - at - 21:
        return False
    at += 21
    name.escaped = name.is_wide = value.escaped = False
    while at < end:
        if end - at < 2:
            return False
        name.length = _i16(at)
        at += 2
        if name.length <= 0 or end - at < name.length + 4:
            return False
        name.at = at
        at += name.length
        value.length = _i32(at)
        at += 4
        if value.length <= 0 or end - at < value.length:
            return False
        value.at = at
        at += value.length
        if head.fields == FIELDS_MAX or _same_name_before(head, name):
            return False
        value.is_wide = not _is_ascii(value.at, value.length)
        if not _is_ascii(name.at, name.length) or (value.is_wide and not _is_text(value.at, value.length)):
            return False
        head.name[head.fields] = name
        head.value[head.fields] = value
        head.fields += 1
    return True


cdef int _put_character(unsigned char* out, int unit) noexcept nogil:
    """Write a character beyond ASCII as UTF-8; how many bytes."""
    if unit < 0x800:
        out[0] = <unsigned char>(0xC0 | unit >> 6)
        out[1] = <unsigned char>(0x80 | unit & 0x3F)
        return 2
    if unit < 0x10000:
        out[0] = <unsigned char>(0xE0 | unit >> 12)
        out[1] = <unsigned char>(0x80 | unit >> 6 & 0x3F)
        out[2] = <unsigned char>(0x80 | unit & 0x3F)
        return 3
    out[0] = <unsigned char>(0xF0 | unit >> 18)
    out[1] = <unsigned char>(0x80 | unit >> 12 & 0x3F)
    out[2] = <unsigned char>(0x80 | unit >> 6 & 0x3F)
    out[3] = <unsigned char>(0x80 | unit & 0x3F)
    return 4


cdef int unescape(Text text, unsigned char* out) noexcept nogil:
    """The bytes of a JSON string; how many there are.  `out` has room for text.length: an escape never gets longer."""
    cdef int i = 0, n = 0, unit
    cdef unsigned char byte
    while i < text.length:
        byte = text.at[i]
        i += 1
        if byte == c"\\":
            byte = text.at[i]  # _escape saw all that follows
            i += 1
            if byte == c"u":
                unit = _unit(text.at + i)
                i += 4
                if unit >= 0x80:
                    if 0xD800 <= unit <= 0xDBFF:
                        unit = 0x10000 + ((unit & 0x3FF) << 10 | _unit(text.at + i + 2) & 0x3FF)
                        i += 6
                    n += _put_character(out + n, unit)
                    continue
                byte = <unsigned char>unit
            elif byte == c"n":
                byte = c"\n"
            elif byte == c"t":
                byte = c"\t"
            elif byte == c"r":
                byte = c"\r"
            elif byte == c"b":
                byte = 8
            elif byte == c"f":
                byte = 12
        out[n] = byte
        n += 1
    return n
