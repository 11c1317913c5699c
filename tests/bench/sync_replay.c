/* Yardstick for SYNC_FLUSH: pwrite and fdatasync the list of sizes that sync_sizes.c wrote down.
 *
 *   sync_replay SIZES FILE SECONDS
 *
 * Plays the list once, but stops after SECONDS.  The file is fallocated ahead like a log segment.  Prints one
 * line of JSON: syncs, bytes, seconds.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FILE_BYTES (1ll << 30)
#define CHUNK_MAX (64u << 20)

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    if (argc != 4) { fprintf(stderr, "usage: sync_replay SIZES FILE SECONDS\n"); return 2; }
    FILE *sizes = fopen(argv[1], "rb");
    int fd = open(argv[2], O_RDWR | O_CREAT | O_TRUNC, 0644);
    char *data = malloc(CHUNK_MAX);
    if (!sizes || fd < 0 || !data || posix_fallocate(fd, 0, FILE_BYTES) || fsync(fd)) { perror("sync_replay"); return 2; }
    memset(data, 'x', CHUNK_MAX);
    uint32_t bytes;
    long long at = 0, total = 0, syncs = 0;
    double start = now(), limit = atof(argv[3]);
    while (fread(&bytes, sizeof bytes, 1, sizes) == 1 && now() - start < limit) {
        if (bytes > CHUNK_MAX) bytes = CHUNK_MAX;
        if (at + bytes > FILE_BYTES) at = 0;
        if (pwrite(fd, data, bytes, at) != (ssize_t)bytes || fdatasync(fd)) { perror("sync_replay"); return 2; }
        at += bytes; total += bytes; syncs++;
    }
    printf("{\"syncs\":%lld,\"bytes\":%lld,\"seconds\":%.4f}\n", syncs, total, now() - start);
    return 0;
}
