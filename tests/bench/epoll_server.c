/* The yardstick of a send: what this machine's sockets and page cache cost a server that does nothing else.
 *
 *   epoll_server FOLDER          prints "ready PORT" and serves 127.0.0.1 until it is ended
 *
 * One thread and one epoll.  A turn reads every connection that is ready (once, as the broker does), cuts the frames,
 * writes all whole frames of the turn into a file with one pwrite, and answers each frame with a reply of the length
 * that the broker's has, one send for each connection.  It looks at no header and checks no sum.
 *
 * The file is allocated ahead in segments like the broker's, so that each pwrite meets new pages; a full one is
 * removed when the next one begins.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define FRAME_BYTES_MAX (16u << 20)
#define READ_BYTES (1u << 20)
#define TURN_BYTES (24u << 20) /* a large frame that was kept, and one read behind it */
#define SEGMENT_BYTES (256 << 20)
#define REPLY_BYTES 302
#define REPLIES_MAX 8192 /* of one read */
#define EVENTS_MAX 1024
#define WAITING_MAX (1 << 20) /* a peer that does not read is cut off */

struct connection {
    int fd;
    char *rest;          /* the beginning of a frame */
    size_t rest_bytes;
    char *waiting;       /* output that the kernel did not take */
    size_t waiting_bytes;
    size_t frames;       /* of this turn */
    int is_gone;
};

static char *turn, *replies;
static size_t turn_bytes;
static struct connection *due[EVENTS_MAX];
static int due_count, poll_fd, log_fd = -1;
static const char *folder;
static long long log_end;

static void die(const char *what) {
    fprintf(stderr, "epoll_server: %s: %s\n", what, strerror(errno));
    exit(2);
}

static void new_segment(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/segment", folder);
    if (log_fd >= 0) close(log_fd);
    unlink(path);
    log_fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (log_fd < 0 || posix_fallocate(log_fd, 0, SEGMENT_BYTES)) die(path);
    log_end = 0;
}

static void forget(struct connection *c) {
    close(c->fd);
    free(c->rest);
    free(c->waiting);
    free(c);
}

static void keep(char **to, size_t *bytes, const char *from, size_t n) {
    char *grown = realloc(*to, *bytes + n);
    if (!grown) die("memory");
    memcpy(grown + *bytes, from, n);
    *to = grown;
    *bytes += n;
}

static void watch(struct connection *c) {
    struct epoll_event e = {.events = EPOLLIN | (c->waiting_bytes ? EPOLLOUT : 0u), .data.ptr = c};
    if (epoll_ctl(poll_fd, EPOLL_CTL_MOD, c->fd, &e)) die("epoll_ctl");
}

static void send_to(struct connection *c, const char *at, size_t n) {
    if (!c->waiting_bytes) {
        ssize_t sent = send(c->fd, at, n, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN) { c->is_gone = 1; return; }
        if (sent > 0) { at += sent; n -= (size_t)sent; }
        if (!n) return;
    }
    keep(&c->waiting, &c->waiting_bytes, at, n);
    if (c->waiting_bytes > WAITING_MAX) c->is_gone = 1;
    else watch(c);
}

static void drain(struct connection *c) {
    ssize_t sent = send(c->fd, c->waiting, c->waiting_bytes, MSG_NOSIGNAL);
    if (sent < 0) { c->is_gone = errno != EAGAIN; return; }
    c->waiting_bytes -= (size_t)sent;
    memmove(c->waiting, c->waiting + sent, c->waiting_bytes);
    if (!c->waiting_bytes) watch(c);
}

/* What the turn has read so far: one pwrite, and each connection's replies. */
static void end_turn(void) {
    if (turn_bytes) {
        if (log_end + (long long)turn_bytes > SEGMENT_BYTES) new_segment();
        if (pwrite(log_fd, turn, turn_bytes, log_end) != (ssize_t)turn_bytes) die("pwrite");
        log_end += (long long)turn_bytes;
    }
    for (int i = 0; i < due_count; i++) {
        struct connection *c = due[i];
        while (c->frames && !c->is_gone) {
            size_t n = c->frames < REPLIES_MAX ? c->frames : REPLIES_MAX;
            send_to(c, replies, n * REPLY_BYTES);
            c->frames -= n;
        }
        if (c->is_gone) forget(c);
    }
    due_count = 0;
    turn_bytes = 0;
}

static void take(struct connection *c) {
    if (TURN_BYTES - turn_bytes < c->rest_bytes + READ_BYTES) end_turn();
    char *begin = turn + turn_bytes;
    memcpy(begin, c->rest, c->rest_bytes);
    ssize_t got = recv(c->fd, begin + c->rest_bytes, READ_BYTES, 0);
    due[due_count++] = c;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) { c->is_gone = 1; return; }
    size_t end = c->rest_bytes + (size_t)got, at = 0;
    while (end - at >= 4) {
        uint32_t length;
        memcpy(&length, begin + at, 4);
        length = ntohl(length);
        if (length < 4 || length > FRAME_BYTES_MAX - 4) { c->is_gone = 1; return; }
        if (end - at < 4 + (size_t)length) break;
        at += 4 + (size_t)length;
        c->frames++;
    }
    c->rest_bytes = 0;
    if (end > at) keep(&c->rest, &c->rest_bytes, begin + at, end - at);
    turn_bytes += at;
}

static void accept_one(int listener) {
    int on = 1, fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    struct connection *c = calloc(1, sizeof *c);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    if (!c) die("memory");
    c->fd = fd;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &e)) die("epoll_ctl");
}

static void make_replies(void) {
    static const char header[] = "{\"code\":0,\"flag\":1,\"language\":\"JAVA\",\"opaque\":1000000000,\"version\":479}";
    replies = calloc(REPLIES_MAX, REPLY_BYTES);
    turn = malloc(TURN_BYTES);
    if (!replies || !turn) die("memory");
    for (int i = 0; i < REPLIES_MAX; i++) {
        uint32_t length = htonl(REPLY_BYTES - 4), header_bytes = htonl(sizeof header - 1);
        char *at = replies + (size_t)i * REPLY_BYTES;
        memcpy(at, &length, 4);
        memcpy(at + 4, &header_bytes, 4);
        memcpy(at + 8, header, sizeof header - 1);
    }
}

int main(int argc, char **argv) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (argc != 2) { fprintf(stderr, "usage: epoll_server FOLDER\n"); return 2; }
    folder = argv[1];
    make_replies();
    new_segment();
    poll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL}, events[EVENTS_MAX];
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 1024)) die("listen");
    if (getsockname(listener, (struct sockaddr *)&at, &size)) die("getsockname");
    if (poll_fd < 0 || epoll_ctl(poll_fd, EPOLL_CTL_ADD, listener, &e)) die("epoll");
    printf("ready %d\n", ntohs(at.sin_port));
    fflush(stdout);
    for (;;) {
        int n = epoll_wait(poll_fd, events, EVENTS_MAX, -1);
        if (n < 0 && errno != EINTR) die("epoll_wait");
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            if (!c) { accept_one(listener); continue; }
            if (events[i].events & EPOLLOUT) drain(c);
            if (c->is_gone) { due[due_count++] = c; continue; }
            if (events[i].events & ~(uint32_t)EPOLLOUT) take(c);
        }
        end_turn();
    }
}
