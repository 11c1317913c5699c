/* CRC-32 (the zlib polynomial, reflected) at memory speed.
 *
 * On x86-64 with PCLMULQDQ: folds 64 bytes a step by carry-less multiplication and finishes by Barrett reduction,
 * after V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ" (Intel, 2009); the
 * constants are those of the reflected polynomial 0xEDB88320.  On AArch64 with the CRC extension: its instructions.
 * Everywhere else, and for short inputs: eight tables, eight bytes a step.  The choice is made once, at run time.
 */
#ifndef GANTRY_CRC_H
#define GANTRY_CRC_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint32_t crc_tables[8][256];
static int crc_has_pclmul;

static void crc_setup(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = c & 1 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
        crc_tables[0][i] = c;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int t = 1; t < 8; t++)
            crc_tables[t][i] = (crc_tables[t - 1][i] >> 8) ^ crc_tables[0][crc_tables[t - 1][i] & 0xff];
#if defined(__x86_64__)
    __builtin_cpu_init();
    crc_has_pclmul = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
}

/* state in, state out: not inverted */
static uint32_t crc_by_table(uint32_t c, const unsigned char *p, size_t n) {
    while (n >= 8) {
        uint64_t v;
        memcpy(&v, p, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        v = __builtin_bswap64(v);
#endif
        v ^= c;
        c = crc_tables[7][v & 0xff] ^ crc_tables[6][(v >> 8) & 0xff] ^ crc_tables[5][(v >> 16) & 0xff] ^ crc_tables[4][(v >> 24) & 0xff] ^
            crc_tables[3][(v >> 32) & 0xff] ^ crc_tables[2][(v >> 40) & 0xff] ^ crc_tables[1][(v >> 48) & 0xff] ^ crc_tables[0][v >> 56];
        p += 8;
        n -= 8;
    }
    while (n--) c = crc_tables[0][(c ^ *p++) & 0xff] ^ (c >> 8);
    return c;
}

#if defined(__x86_64__)
#include <immintrin.h>

/* n >= 64; handles the leading multiple of 16 bytes and leaves the rest to the caller */
__attribute__((target("pclmul,sse4.1"))) static uint32_t crc_by_pclmul(uint32_t c, const unsigned char *p, size_t n) {
    const __m128i k1k2 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4); /* x^(512+64) and x^512 mod P */
    const __m128i k3k4 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0); /* x^(128+64) and x^128 mod P */
    const __m128i k5 = _mm_set_epi64x(0, 0x0163cd6124);              /* x^64 mod P */
    const __m128i poly = _mm_set_epi64x(0x01f7011641, 0x01db710641); /* P and its inverse */
    const __m128i low32 = _mm_setr_epi32(~0, 0, ~0, 0);
    __m128i x1 = _mm_loadu_si128((const __m128i *)p), x2 = _mm_loadu_si128((const __m128i *)(p + 16));
    __m128i x3 = _mm_loadu_si128((const __m128i *)(p + 32)), x4 = _mm_loadu_si128((const __m128i *)(p + 48));
    x1 = _mm_xor_si128(x1, _mm_cvtsi32_si128((int)c));
    p += 64;
    n -= 64;
#define FOLD(x, k, at) _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_clmulepi64_si128(x, k, 0x11)), at)
    for (; n >= 64; p += 64, n -= 64) {
        x1 = FOLD(x1, k1k2, _mm_loadu_si128((const __m128i *)p));
        x2 = FOLD(x2, k1k2, _mm_loadu_si128((const __m128i *)(p + 16)));
        x3 = FOLD(x3, k1k2, _mm_loadu_si128((const __m128i *)(p + 32)));
        x4 = FOLD(x4, k1k2, _mm_loadu_si128((const __m128i *)(p + 48)));
    }
    x1 = FOLD(x1, k3k4, x2);
    x1 = FOLD(x1, k3k4, x3);
    x1 = FOLD(x1, k3k4, x4);
    for (; n >= 16; p += 16, n -= 16) x1 = FOLD(x1, k3k4, _mm_loadu_si128((const __m128i *)p));
#undef FOLD
    x2 = _mm_clmulepi64_si128(x1, k3k4, 0x10);
    x1 = _mm_xor_si128(_mm_srli_si128(x1, 8), x2);
    x2 = _mm_srli_si128(x1, 4);
    x1 = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(x1, low32), k5, 0x00), x2);
    x2 = _mm_clmulepi64_si128(_mm_and_si128(x1, low32), poly, 0x10);
    x2 = _mm_clmulepi64_si128(_mm_and_si128(x2, low32), poly, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(x1, x2), 1);
}
#endif

#if defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
static uint32_t crc_by_instruction(uint32_t c, const unsigned char *p, size_t n) {
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        c = __crc32d(c, v);
    }
    while (n--) c = __crc32b(c, *p++);
    return c;
}
#endif

/* RocketMQ's body CRC: CRC-32 without its top bit (UtilAll.crc32). */
static uint32_t crc31(const unsigned char *p, size_t n) {
    uint32_t c = 0xFFFFFFFFu;
#if defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
    return ~crc_by_instruction(c, p, n) & 0x7FFFFFFF;
#else
#if defined(__x86_64__)
    if (crc_has_pclmul && n >= 64) {
        size_t whole = n & ~(size_t)15;
        c = crc_by_pclmul(c, p, whole);
        p += whole;
        n -= whole;
    }
#endif
    return ~crc_by_table(c, p, n) & 0x7FFFFFFF;
#endif
}

#endif
