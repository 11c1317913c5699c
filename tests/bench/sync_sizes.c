/* LD_PRELOAD library: writes down how many bytes each fdatasync of a run covered.
 *
 * For every fdatasync or fsync that covers pwritten bytes one little 32-bit number (bytes pwritten to that
 * descriptor since its last sync) is appended to the file named by BENCH_SYNC_SIZES.  sync_replay.c plays the
 * list back: what a loop in C needs for the same work is the yardstick for SYNC_FLUSH.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#define DESCRIPTORS 4096
static _Atomic uint32_t pending[DESCRIPTORS];

static void covered(int fd) {
    static int log_fd = -2;
    if (log_fd == -2) {
        const char *path = getenv("BENCH_SYNC_SIZES");
        log_fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
    }
    uint32_t bytes = fd >= 0 && fd < DESCRIPTORS ? atomic_exchange(&pending[fd], 0) : 0;
    if (bytes && log_fd >= 0 && write(log_fd, &bytes, sizeof bytes) < 0) abort();
}

static ssize_t count(int fd, ssize_t n) {
    if (n > 0 && fd >= 0 && fd < DESCRIPTORS) atomic_fetch_add(&pending[fd], (uint32_t)n);
    return n;
}

typedef ssize_t (*pwrite_fn)(int, const void *, size_t, off_t);
typedef int (*sync_fn)(int);

ssize_t pwrite(int fd, const void *data, size_t n, off_t at) {
    static pwrite_fn real;
    if (!real) real = (pwrite_fn)dlsym(RTLD_NEXT, "pwrite");
    return count(fd, real(fd, data, n, at));
}

ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at) {
    static pwrite_fn real;
    if (!real) real = (pwrite_fn)dlsym(RTLD_NEXT, "pwrite64");
    return count(fd, real(fd, data, n, at));
}

int fdatasync(int fd) {
    static sync_fn real;
    if (!real) real = (sync_fn)dlsym(RTLD_NEXT, "fdatasync");
    int result = real(fd);
    covered(fd);
    return result;
}
