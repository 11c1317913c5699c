/* One thread that does nothing but fdatasync, without Python's lock.
 *
 * A request names descriptors and a target.  A newer request replaces one that has not begun
 * (anyone who asks again names everything that is not durable yet), so one fdatasync covers all that was written while
 * the one before it ran: group commit.  The outcome is kept and the eventfd becomes readable; outcomes that nobody
 * has fetched merge: the highest target that succeeded, or the first error, which is final.
 */
#ifndef GANTRY_FLUSH_THREAD_H
#define GANTRY_FLUSH_THREAD_H

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct flush_thread {
    pthread_mutex_t guard;
    pthread_cond_t changed;
    pthread_t thread;
    int event_fd;
    int closing, busy, waiting;      /* waiting: a request has not begun */
    int *files, count;               /* of the request that has not begun; freed by anyone who takes its place or runs it */
    long long target;
    long long done;                  /* highest target that succeeded and was not fetched, or -1 */
    int error;                       /* errno of the first failure */
};

static void *flush_run(void *argument) {
    struct flush_thread *t = argument;
    pthread_mutex_lock(&t->guard);
    for (;;) {
        while (!t->waiting && !t->closing) pthread_cond_wait(&t->changed, &t->guard);
        if (!t->waiting) break;
        int *files = t->files, count = t->count, error = 0;
        long long target = t->target;
        t->files = NULL;
        t->waiting = 0;
        t->busy = 1;
        pthread_mutex_unlock(&t->guard);
        for (int i = 0; i < count && !error; i++)
            if (fdatasync(files[i])) error = errno;
        free(files);
        pthread_mutex_lock(&t->guard);
        t->busy = 0;
        if (error && !t->error) t->error = error;
        if (!t->error) t->done = target;
        uint64_t one = 1;
        if (write(t->event_fd, &one, sizeof one) < 0 && errno != EAGAIN) abort();
        pthread_cond_broadcast(&t->changed);
    }
    pthread_mutex_unlock(&t->guard);
    return NULL;
}

static struct flush_thread *flush_start(void) {
    struct flush_thread *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    t->done = -1;
    pthread_mutex_init(&t->guard, NULL);
    pthread_cond_init(&t->changed, NULL);
    t->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (t->event_fd >= 0 && !pthread_create(&t->thread, NULL, flush_run, t)) return t;
    if (t->event_fd >= 0) close(t->event_fd);
    free(t);
    return NULL;
}

/* files: made by malloc, and the thread's from here on. */
static void flush_request(struct flush_thread *t, int *files, int count, long long target) {
    pthread_mutex_lock(&t->guard);
    free(t->files);
    t->files = files;
    t->count = count;
    t->target = target;
    t->waiting = 1;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->guard);
}

/* The outcomes since the last call; *target is -1 when nothing succeeded. */
static int flush_outcome(struct flush_thread *t, long long *target) {
    uint64_t count;
    pthread_mutex_lock(&t->guard);
    if (read(t->event_fd, &count, sizeof count) < 0 && errno != EAGAIN) abort();
    *target = t->done;
    t->done = -1;
    int error = t->error;
    pthread_mutex_unlock(&t->guard);
    return error;
}

static void flush_drain(struct flush_thread *t) {
    pthread_mutex_lock(&t->guard);
    while (t->waiting || t->busy) pthread_cond_wait(&t->changed, &t->guard);
    pthread_mutex_unlock(&t->guard);
}

static void flush_close(struct flush_thread *t) {
    pthread_mutex_lock(&t->guard);
    t->closing = 1;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->guard);
    pthread_join(t->thread, NULL);
    close(t->event_fd);
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->guard);
    free(t);
}

#endif
