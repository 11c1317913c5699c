/* What a real broker does to its disk and its sockets, seen and held up from inside its own process (LD_PRELOAD).
 *
 * kill -9 cannot test SYNC_FLUSH: the page cache survives the process.  This library can, because it stands where
 * fdatasync is called.
 *
 *   DISKSHIM_LOG       file; one line per event: <CLOCK_MONOTONIC ns> <event> ...
 *   DISKSHIM_CONTROL   file, read at every fdatasync of a watched file; its first word decides:
 *                        pass      (or no such file)  do it
 *                        block     wait until the word is another one, then follow that
 *                        block P   the same where the path has P in it; the others are done
 *                        fail      EIO, nothing synced
 *                        fail N    EIO from the N-th watched fdatasync of this process on
 *   DISKSHIM_WATCH     part of the paths that count; default /commitlog/
 *
 * Events (times: pwrite, zero when they have returned; sync-begin before, sync-end after; send before the bytes leave):
 *   pwrite OFFSET COUNT PATH | zero OFFSET COUNT PATH | sync-begin PATH | sync-end ERRNO PATH | send FD HEX
 *
 * Only regular files whose path is watched and only connected stream sockets are logged.  Payloads are cut at
 * SEND_BYTES_MAX.  Every line leaves by one write to a descriptor opened with O_APPEND, so threads do not mix.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define SEND_BYTES_MAX (64 * 1024)
#define PATH_BYTES 4096
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int log_descriptor = -1;
static const char *control_path;
static const char *watched = "/commitlog/";
static long syncs_seen;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("DISKSHIM_LOG");
    if (path != NULL)
        log_descriptor = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    control_path = getenv("DISKSHIM_CONTROL");
    if (getenv("DISKSHIM_WATCH") != NULL)
        watched = getenv("DISKSHIM_WATCH");
}

static long long now_ns(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static void put(const char *line, size_t length)
{
    ssize_t (*real_write)(int, const void *, size_t) = REAL(write);
    int kept = errno;
    if (log_descriptor >= 0 && real_write(log_descriptor, line, length) < 0)
        log_descriptor = -1;
    errno = kept;
}

__attribute__((format(printf, 1, 2))) static void note(const char *format, ...)
{
    char line[PATH_BYTES + 128];
    va_list arguments;
    int length = snprintf(line, sizeof line, "%lld ", now_ns());
    va_start(arguments, format);
    length += vsnprintf(line + length, sizeof line - length - 1, format, arguments);
    va_end(arguments);
    if (length > (int)sizeof line - 2)
        length = sizeof line - 2;
    line[length++] = '\n';
    put(line, length);
}

/* The path behind a descriptor, when it is a watched one; else NULL. */
static const char *watched_path(int descriptor, char *path)
{
    char link[64];
    int kept = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, PATH_BYTES - 1);
    errno = kept;
    if (length <= 0)
        return NULL;
    path[length] = 0;
    return strstr(path, watched) != NULL ? path : NULL;
}

static int is_connection(int descriptor)
{
    struct stat found;
    struct sockaddr_storage peer;
    socklen_t length = sizeof peer;
    int kept = errno;
    int yes = fstat(descriptor, &found) == 0 && S_ISSOCK(found.st_mode) &&
              getpeername(descriptor, (struct sockaddr *)&peer, &length) == 0 && peer.ss_family != AF_UNIX;
    errno = kept;
    return yes;
}

static void note_send(int descriptor, const struct iovec *pieces, int count)
{
    static const char digits[] = "0123456789abcdef";
    if (log_descriptor < 0 || !is_connection(descriptor))
        return;
    char *line = malloc(64 + 2 * SEND_BYTES_MAX);
    if (line == NULL)
        return;
    size_t at = snprintf(line, 64, "%lld send %d ", now_ns(), descriptor), payload = 0;
    for (int number = 0; number < count; number++) {
        const unsigned char *bytes = pieces[number].iov_base;
        for (size_t i = 0; i < pieces[number].iov_len && payload < SEND_BYTES_MAX; i++, payload++) {
            line[at++] = digits[bytes[i] >> 4];
            line[at++] = digits[bytes[i] & 15];
        }
    }
    line[at++] = '\n';
    put(line, at);
    free(line);
}

/* 0 to go on, EIO to fail. */
static int follow_control(const char *path)
{
    for (;;) {
        char word[256] = "pass";
        int from = control_path != NULL ? open(control_path, O_RDONLY | O_CLOEXEC) : -1;
        if (from >= 0) {
            ssize_t length = read(from, word, sizeof word - 1);
            close(from);
            word[length > 0 ? length : 0] = 0;
        }
        if (strncmp(word, "fail", 4) == 0)
            return syncs_seen >= atol(word + 4) ? EIO : 0;
        if (strncmp(word, "block", 5) != 0 || (word[5] == ' ' && strstr(path, word + 6) == NULL))
            return 0;
        struct timespec pause = {0, 1000000};
        nanosleep(&pause, NULL);
    }
}

static int sync_with(int (*real)(int), int descriptor)
{
    char path[PATH_BYTES];
    if (watched_path(descriptor, path) == NULL)
        return real(descriptor);
    __atomic_add_fetch(&syncs_seen, 1, __ATOMIC_SEQ_CST);
    note("sync-begin %s", path);
    int failed = follow_control(path);
    if (failed == 0 && real(descriptor) != 0)
        failed = errno;
    note("sync-end %d %s", failed, path);
    errno = failed;
    return failed == 0 ? 0 : -1;
}

int fdatasync(int descriptor)
{
    return sync_with(REAL(fdatasync), descriptor);
}

int fsync(int descriptor)
{
    return sync_with(REAL(fsync), descriptor);
}

static ssize_t wrote(int descriptor, ssize_t done, off_t offset)
{
    char path[PATH_BYTES];
    if (done > 0 && watched_path(descriptor, path) != NULL)
        note("pwrite %lld %lld %s", (long long)offset, (long long)done, path);
    return done;
}

ssize_t pwrite(int descriptor, const void *bytes, size_t count, off_t offset)
{
    return wrote(descriptor, REAL(pwrite)(descriptor, bytes, count, offset), offset);
}

ssize_t pwrite64(int descriptor, const void *bytes, size_t count, off64_t offset)
{
    return wrote(descriptor, REAL(pwrite64)(descriptor, bytes, count, offset), offset);
}

int fallocate(int descriptor, int mode, off_t offset, off_t count)
{
    char path[PATH_BYTES];
    int result = REAL(fallocate)(descriptor, mode, offset, count);
    if (result == 0 && mode != 0 && watched_path(descriptor, path) != NULL)
        note("zero %lld %lld %s", (long long)offset, (long long)count, path);
    return result;
}

ssize_t send(int descriptor, const void *bytes, size_t count, int flags)
{
    struct iovec piece = {(void *)bytes, count};
    note_send(descriptor, &piece, 1);
    return REAL(send)(descriptor, bytes, count, flags);
}

ssize_t sendmsg(int descriptor, const struct msghdr *message, int flags)
{
    note_send(descriptor, message->msg_iov, (int)message->msg_iovlen);
    return REAL(sendmsg)(descriptor, message, flags);
}

ssize_t write(int descriptor, const void *bytes, size_t count)
{
    struct iovec piece = {(void *)bytes, count};
    note_send(descriptor, &piece, 1);
    return REAL(write)(descriptor, bytes, count);
}

ssize_t writev(int descriptor, const struct iovec *pieces, int count)
{
    note_send(descriptor, pieces, count);
    return REAL(writev)(descriptor, pieces, count);
}
