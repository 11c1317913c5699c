/* Load generator: pipelined requests over N connections with a window each, from one thread.
 *
 *   loadgen --port P --mode send|pull|redis|fixed|half|transact [--host A] [--connections N] [--window W] [--size BYTES]
 *           [--seconds S] [--warmup S] [--topic T] [--queues Q] [--batch N] [--pid PID] [--count N] [--rate R]
 *
 * send   RocketMQ SEND_MESSAGE_V2 (310), JSON headers; every reply must carry code 0 and the opaque it answers.
 * pull   RocketMQ PULL_MESSAGE (11) of --batch messages; bodies are walked record by record.
 * redis  XADD of one field of --size bytes to the stream --topic; every reply must be a bulk string.
 * half   the same with TRAN_MSG, group bench-tx: a transaction is left open for every message.
 * transact  transactional producers, one transaction each at a time (so --window 1): a half (310 with TRAN_MSG), and when its
 *        reply is there END_TRANSACTION (37, commit) with the offsets that it gave; the commit's reply ends the pair,
 *        and all figures are per pair.  Both requests want an answer.
 * fixed  the frames of send, any reply of a whole frame counts (for a server that answers with constant bytes).
 *
 * With --rate no more than so many requests a second are begun, on all connections together, and no more than the
 * windows hold; what was not begun in time is begun later.
 *
 * A run ends by --seconds or by --count, whichever comes first, and never outlives seconds + warmup + 10.
 * One line of JSON on stdout: messages, rate, latency quantiles (us), errors, and with --pid the CPU that
 * all threads of that process used per message in the measured interval, from /proc/PID/task/TID/schedstat.
 * Exit code 1 when a reply was wrong: a fast wrong answer is no figure.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum mode { SEND, PULL, REDIS, FIXED, HALF, TRANSACT };

#define CONNECTIONS_MAX 1024
#define WINDOW_MAX 4096
#define INPUT_BYTES (1 << 21)
#define OPAQUE_BASE 1000000000u

struct connection {
    int fd;
    int writable;          /* 0 while the kernel refuses bytes */
    unsigned sent, done;   /* sequence numbers; sent - done is what is under way */
    char *out;             /* requests not yet taken by the kernel */
    size_t out_len, out_at;
    char *in;
    size_t in_len;
    uint64_t *sent_ns;     /* ring of WINDOW_MAX send times */
    int queue;
    long long offset;      /* pull: next queue offset */
    int ending;            /* transact: the half is answered and its end under way */
};

static struct options {
    const char *host, *topic;
    int port, connections, window, size, queues, batch, pid;
    enum mode mode;
    double seconds, warmup;
    long long count;
    double rate;
} opt = {"127.0.0.1", "Bench", 0, 1, 1, 1024, 8, 32, 0, SEND, 2.0, 0.5, 0, 0};

static char frame[1 << 20];
static size_t frame_len, opaque_at, key_at, queue_at;
static unsigned long long messages, errors, bytes_in, begun;
static uint64_t began_ns;
static int measuring;
static char first_error[256];

/* Latency histogram: 64 linear steps per power of two of nanoseconds. */
static unsigned long long histogram[64 * 64];

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void die(const char *what) {
    fprintf(stderr, "loadgen: %s: %s\n", what, strerror(errno));
    exit(2);
}

static void wrong(const char *what, const char *detail, size_t n) {
    if (!errors++) snprintf(first_error, sizeof first_error, "%s: %.*s", what, (int)(n > 120 ? 120 : n), detail);
}

static int bucket(uint64_t ns) {
    int top = 63 - __builtin_clzll(ns | 64);
    return (top - 6) * 64 + (int)(ns >> (top - 6)) - 64 + 64 * (top > 6);
}

static double quantile_us(double q) {
    unsigned long long total = 0, seen = 0;
    for (int i = 0; i < 64 * 64; i++) total += histogram[i];
    for (int i = 0; i < 64 * 64; i++) {
        seen += histogram[i];
        if (seen && (double)seen >= q * (double)total) {
            int step = i < 128 ? 0 : i / 64 - 1;
            return (double)((uint64_t)(i < 128 ? i : i % 64 + 64) << step) / 1000.0;
        }
    }
    return 0;
}

/* CPU time of all threads of a process in nanoseconds. */
static uint64_t cpu_ns(int pid) {
    char path[300];
    uint64_t sum = 0;
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *tasks = opendir(path);
    if (!tasks) return 0;
    for (struct dirent *e; (e = readdir(tasks));) {
        unsigned long long ns = 0;
        snprintf(path, sizeof path, "/proc/%d/task/%s/schedstat", pid, e->d_name);
        FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (!f) continue;
        if (fscanf(f, "%llu", &ns) == 1) sum += ns;
        fclose(f);
    }
    closedir(tasks);
    return sum;
}

static void put32(char *at, uint32_t v) { v = htonl(v); memcpy(at, &v, 4); }
static uint32_t get32(const char *at) { uint32_t v; memcpy(&v, at, 4); return ntohl(v); }

static void finish_frame(int header_len, int body_len) {
    put32(frame, (uint32_t)(4 + header_len + body_len));
    put32(frame + 4, (uint32_t)header_len);
    memset(frame + 8 + header_len, 'x', (size_t)body_len);
    frame_len = (size_t)(8 + header_len + body_len);
}

static void build_send(void) {
    int is_half = opt.mode == HALF || opt.mode == TRANSACT;
    int n = sprintf(frame + 8,
        "{\"code\":310,\"extFields\":{\"a\":\"%s\",\"b\":\"%s\",\"c\":\"TBW102\",\"d\":\"%d\",\"e\":\"0000\",\"f\":\"%d\",\"g\":\"%lld\",\"h\":\"0\","
        "\"i\":\"UNIQ_KEY\\u00017F00000100002A9F1B0B0000%08d\\u0002WAIT\\u0001true\\u0002%s\",\"j\":\"0\",\"k\":\"false\",\"m\":\"false\"},"
        "\"flag\":0,\"language\":\"JAVA\",\"opaque\":1000000000,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":401}",
        is_half ? "bench-tx" : "bench", opt.topic, opt.queues, is_half ? 4 : 0, (long long)time(NULL) * 1000, 0,
        is_half ? "TRAN_MSG\\u0001true\\u0002PGROUP\\u0001bench-tx\\u0002" : "");
    opaque_at = (size_t)(strstr(frame + 8, "\"opaque\":") - frame) + 9;
    key_at = (size_t)(strstr(frame + 8, "0B0000") - frame) + 6;
    queue_at = (size_t)(strstr(frame + 8, "\"e\":\"") - frame) + 5;
    finish_frame(n, opt.size);
}

static void build_redis(void) {
    int n = sprintf(frame, "*5\r\n$4\r\nXADD\r\n$%zu\r\n%s\r\n$1\r\n*\r\n$1\r\nf\r\n$%d\r\n", strlen(opt.topic), opt.topic, opt.size);
    memset(frame + n, 'x', (size_t)opt.size);
    memcpy(frame + n + opt.size, "\r\n", 2);
    frame_len = (size_t)(n + opt.size + 2);
}

static void build_pull(struct connection *c) {
    int n = sprintf(frame + 8,
        "{\"code\":11,\"extFields\":{\"commitOffset\":\"0\",\"consumerGroup\":\"bench\",\"expressionType\":\"TAG\",\"maxMsgNums\":\"%d\","
        "\"queueId\":\"%d\",\"queueOffset\":\"%lld\",\"subVersion\":\"0\",\"subscription\":\"*\",\"suspendTimeoutMillis\":\"0\",\"sysFlag\":\"4\",\"topic\":\"%s\"},"
        "\"flag\":0,\"language\":\"JAVA\",\"opaque\":1000000000,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":401}",
        opt.batch, c->queue, c->offset, opt.topic);
    opaque_at = (size_t)(strstr(frame + 8, "\"opaque\":") - frame) + 9;
    finish_frame(n, 0);
}

/* The end of a transaction, into `at`; the fields are those of RocketMQ 5's Java client. */
static size_t build_end(char *at, unsigned opaque, long long queue_offset, long long log_offset, const char *id, int id_len) {
    int n = sprintf(at + 8,
        "{\"code\":37,\"extFields\":{\"bname\":\"broker-a\",\"commitLogOffset\":\"%lld\",\"commitOrRollback\":\"8\",\"fromTransactionCheck\":\"false\","
        "\"msgId\":\"%.*s\",\"producerGroup\":\"bench-tx\",\"topic\":\"%s\",\"tranStateTableOffset\":\"%lld\",\"transactionId\":\"%.*s\"},"
        "\"flag\":0,\"language\":\"JAVA\",\"opaque\":%u,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":401}",
        log_offset, id_len, id, opt.topic, queue_offset, id_len, id, opaque);
    put32(at, (uint32_t)(4 + n));
    put32(at + 4, (uint32_t)n);
    return (size_t)(8 + n);
}

static void patch_digits(size_t at, unsigned value, int digits) {
    for (int i = digits - 1; i >= 0; i--, value /= 10) frame[at + (size_t)i] = (char)('0' + value % 10);
}

static void enqueue(struct connection *c, int index) {
    static unsigned serial;
    if (opt.mode == PULL) build_pull(c);
    if (opt.mode != REDIS) patch_digits(opaque_at, OPAQUE_BASE + c->sent % 1000000000u, 10);
    if (opt.mode != REDIS && opt.mode != PULL) {
        patch_digits(key_at, ++serial % 100000000u, 8);
        patch_digits(queue_at, (unsigned)(index + (int)c->sent) % (unsigned)opt.queues, 4);
    }
    memcpy(c->out + c->out_len, frame, frame_len);
    c->out_len += frame_len;
    c->sent_ns[c->sent++ % WINDOW_MAX] = now_ns();
}

/* Whether another request is due; without --rate always. */
static int is_due(void) {
    return opt.rate <= 0 || (double)begun < opt.rate * (double)(now_ns() - began_ns) / 1e9;
}

static void pump(struct connection *c, int index) {
    while ((int)(c->sent - c->done) < opt.window && is_due()) { enqueue(c, index); begun++; }
    while (c->writable && c->out_at < c->out_len) {
        ssize_t n = write(c->fd, c->out + c->out_at, c->out_len - c->out_at);
        if (n < 0 && errno == EAGAIN) { c->writable = 0; break; }
        if (n < 0) die("write");
        c->out_at += (size_t)n;
    }
    if (c->out_at == c->out_len) c->out_at = c->out_len = 0;
    else if (c->out_at > (1u << 16)) {
        memmove(c->out, c->out + c->out_at, c->out_len - c->out_at);
        c->out_len -= c->out_at;
        c->out_at = 0;
    }
}

/* The number behind a key of a JSON header, quoted or not; -1 when the key is missing. */
static long long number_of(const char *header, size_t n, const char *key) {
    const char *at = memmem(header, n, key, strlen(key));
    if (!at) return -1;
    at += strlen(key);
    return strtoll(*at == '"' ? at + 1 : at, NULL, 10);
}

static unsigned walk_records(struct connection *c, const char *body, size_t n) {
    unsigned count = 0;
    while (n >= 8) {
        uint32_t size = get32(body), magic = get32(body + 4);
        if (size < 91 || size > n || magic != 0xDAA320A7u) { wrong("bad record in a pull reply", "", 0); return count; }
        body += size; n -= size; count++;
    }
    if (n) wrong("rest behind the last record of a pull reply", "", 0);
    (void)c;
    return count;
}

static void answered(struct connection *c, unsigned n) {
    uint64_t took = now_ns() - c->sent_ns[c->done++ % WINDOW_MAX];
    if (!measuring) return;
    histogram[bucket(took)]++;
    messages += n;
}

/* What a JSON header says in quotes behind a key; the length is 0 when the key is missing. */
static int text_of(const char *header, size_t n, const char *key, const char **at) {
    const char *found = memmem(header, n, key, strlen(key));
    if (!found) return 0;
    *at = found + strlen(key);
    const char *end = memchr(*at, '"', n - (size_t)(*at - header));
    return end ? (int)(end - *at) : 0;
}

/* A half is in the log: end it. */
static void end_half(struct connection *c, const char *header, size_t n) {
    const char *id = "", *message_id = "";
    int id_len = text_of(header, n, "\"transactionId\":\"", &id);
    int message_len = text_of(header, n, "\"msgId\":\"", &message_id);
    if (message_len < 32 || message_len > 56) { wrong("a half's reply without msgId", header, n); answered(c, 1); return; }
    char hex[17] = {0};
    memcpy(hex, message_id + message_len - 16, 16);
    c->out_len += build_end(c->out + c->out_len, OPAQUE_BASE + c->done % 1000000000u,
                            number_of(header, n, "\"queueOffset\":"), strtoll(hex, NULL, 16), id, id_len);
    c->ending = 1;
}

static void take_frame(struct connection *c, const char *at, size_t n) {
    size_t header_len = get32(at + 4) & 0xffffff;
    const char *header = at + 8;
    if (header_len > n - 8) { wrong("header longer than its frame", at, 0); return; }
    if (opt.mode == FIXED) { answered(c, 1); return; }
    long long code = number_of(header, header_len, "\"code\":"), opaque = number_of(header, header_len, "\"opaque\":");
    /* Replies of one connection come in order here: one batch core answers a window in the order of its requests. */
    if (opaque != (long long)(OPAQUE_BASE + c->done % 1000000000u)) wrong("unexpected opaque", header, header_len);
    if (opt.mode == TRANSACT) {
        if (code != 0) wrong(c->ending ? "commit refused" : "half refused", header, header_len);
        else if (!c->ending) { end_half(c, header, header_len); return; }
        c->ending = 0;
        answered(c, 1);
        return;
    }
    if (opt.mode == SEND || opt.mode == HALF) {
        if (code != 0) wrong("send refused", header, header_len);
        answered(c, 1);
        return;
    }
    unsigned found = 0;
    if (code == 0) found = walk_records(c, header + header_len, n - 8 - header_len);
    else if (code != 19 && code != 21) wrong("pull refused", header, header_len);
    c->offset = code == 0 ? number_of(header, header_len, "\"nextBeginOffset\":") : 0;
    answered(c, found);
}

static void consume_input(struct connection *c) {
    size_t at = 0;
    while (c->in_len - at >= 4) {
        if (opt.mode == REDIS) {
            char *end = memmem(c->in + at, c->in_len - at, "\r\n", 2);
            if (!end) break;
            if (c->in[at] != '$') { wrong("redis refused", c->in + at, (size_t)(end - c->in) - at); at = (size_t)(end - c->in) + 2; answered(c, 1); continue; }
            size_t whole = (size_t)(end - c->in) + 2 + (size_t)atoi(c->in + at + 1) + 2;
            if (whole > c->in_len) break;
            at = whole;
            answered(c, 1);
            continue;
        }
        size_t whole = 4 + (size_t)get32(c->in + at);
        if (whole > INPUT_BYTES) { fprintf(stderr, "loadgen: a frame of %zu bytes\n", whole); exit(2); }
        if (c->in_len - at < whole) break;
        take_frame(c, c->in + at, whole);
        at += whole;
    }
    memmove(c->in, c->in + at, c->in_len - at);
    c->in_len -= at;
}

static void open_connection(struct connection *c, int index, int poll) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)opt.port)};
    int on = 1;
    if (inet_pton(AF_INET, opt.host, &to.sin_addr) != 1) die("host");
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(c->fd, (struct sockaddr *)&to, sizeof to)) die("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    c->writable = 1;
    c->queue = index % opt.queues;
    c->in = malloc(INPUT_BYTES);
    c->out = malloc(((size_t)opt.window + 2) * (frame_len + 1024) + (1u << 17));
    c->sent_ns = calloc(WINDOW_MAX, sizeof *c->sent_ns);
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.u32 = (uint32_t)index};
    if (!c->in || !c->out || !c->sent_ns || epoll_ctl(poll, EPOLL_CTL_ADD, c->fd, &e)) die("connection");
}

static void serve(struct connection *c, int index, uint32_t events) {
    if (events & EPOLLOUT) c->writable = 1;
    for (;;) {
        ssize_t n = read(c->fd, c->in + c->in_len, INPUT_BYTES - c->in_len);
        if (n == 0) { fprintf(stderr, "loadgen: the server closed a connection%s%s\n", first_error[0] ? "; first error: " : "", first_error); exit(2); }
        if (n < 0 && errno == EAGAIN) break;
        if (n < 0) die("read");
        bytes_in += (unsigned long long)n;
        c->in_len += (size_t)n;
        consume_input(c);
        pump(c, index);
    }
    pump(c, index);
}

static void parse(int argc, char **argv) {
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *k = argv[i], *v = argv[i + 1];
        if (!strcmp(k, "--host")) opt.host = v;
        else if (!strcmp(k, "--port")) opt.port = atoi(v);
        else if (!strcmp(k, "--topic")) opt.topic = v;
        else if (!strcmp(k, "--connections")) opt.connections = atoi(v);
        else if (!strcmp(k, "--window")) opt.window = atoi(v);
        else if (!strcmp(k, "--size")) opt.size = atoi(v);
        else if (!strcmp(k, "--queues")) opt.queues = atoi(v);
        else if (!strcmp(k, "--batch")) opt.batch = atoi(v);
        else if (!strcmp(k, "--pid")) opt.pid = atoi(v);
        else if (!strcmp(k, "--count")) opt.count = atoll(v);
        else if (!strcmp(k, "--rate")) opt.rate = atof(v);
        else if (!strcmp(k, "--seconds")) opt.seconds = atof(v);
        else if (!strcmp(k, "--warmup")) opt.warmup = atof(v);
        else if (!strcmp(k, "--mode")) opt.mode = !strcmp(v, "pull") ? PULL : !strcmp(v, "redis") ? REDIS : !strcmp(v, "fixed") ? FIXED :
                                               !strcmp(v, "half") ? HALF : !strcmp(v, "transact") ? TRANSACT : SEND;
        else { fprintf(stderr, "loadgen: unknown option %s\n", k); exit(2); }
    }
    if (opt.port <= 0 || opt.connections < 1 || opt.connections > CONNECTIONS_MAX || opt.window < 1 || opt.window > WINDOW_MAX ||
        opt.size < 0 || opt.size > (1 << 19) || opt.queues < 1 || opt.queues > 9999 || strlen(opt.topic) > 127 || (opt.mode == TRANSACT && opt.window != 1)) {
        fprintf(stderr, "loadgen: an option is missing or out of range\n");
        exit(2);
    }
}

int main(int argc, char **argv) {
    static struct connection connections[CONNECTIONS_MAX];
    parse(argc, argv);
    if (opt.mode == REDIS) build_redis();
    else if (opt.mode != PULL) build_send();
    int poll = epoll_create1(0);
    for (int i = 0; i < opt.connections; i++) open_connection(&connections[i], i, poll);
    began_ns = now_ns();
    for (int i = 0; i < opt.connections; i++) pump(&connections[i], i);
    uint64_t begin = now_ns(), start = begin + (uint64_t)(opt.warmup * 1e9), end = start + (uint64_t)(opt.seconds * 1e9), cpu = 0, began = 0;
    struct epoll_event events[CONNECTIONS_MAX];
    for (;;) {
        int n = epoll_wait(poll, events, CONNECTIONS_MAX, opt.rate > 0 ? 1 : 1000);
        uint64_t now = now_ns();
        if (!measuring && now >= start) { measuring = 1; began = now; cpu = opt.pid ? cpu_ns(opt.pid) : 0; }
        if (now >= end || (opt.count && messages >= (unsigned long long)opt.count)) break;
        for (int i = 0; opt.rate > 0 && i < opt.connections; i++) pump(&connections[i], i);
        for (int i = 0; i < n; i++) serve(&connections[events[i].data.u32], (int)events[i].data.u32, events[i].events);
    }
    double took = (double)(now_ns() - began) / 1e9;
    double cpu_us = opt.pid && messages ? (double)(cpu_ns(opt.pid) - cpu) / 1000.0 / (double)messages : -1;
    printf("{\"messages\":%llu,\"seconds\":%.3f,\"rate\":%.0f,\"p50_us\":%.1f,\"p99_us\":%.1f,\"p999_us\":%.1f,\"cpu_us_per_message\":%.3f,\"errors\":%llu,\"first_error\":\"",
           messages, took, (double)messages / took, quantile_us(.5), quantile_us(.99), quantile_us(.999), cpu_us, errors);
    for (const char *p = first_error; *p; p++) if (*p >= ' ' && *p != '"' && *p != '\\') putchar(*p);
    printf("\"}\n");
    return errors ? 1 : 0;
}
