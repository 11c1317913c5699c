/* Load generator: pipelined requests over N connections with a window each, from one thread.
 *
 *   loadgen --port P --mode send|pull|pop|redis|fixed|half|transact|back|live [--host A] [--connections N] [--window W]
 *           [--size BYTES | --body FILE] [--seconds S] [--warmup S] [--topic T] [--queues Q] [--batch N] [--pid PID] [--count N]
 *           [--rate R] [--per N] [--code 310|320] [--sysflag N] [--properties P] [--binary 1] [--until OFFSET] [--offsets FILE]
 *           [--topics N] [--invisible MS]
 *
 * send   RocketMQ SEND_MESSAGE_V2 (310), JSON headers; every reply must carry code 0 and the opaque of a request under way.
 *        --per: so many messages in one request, with the batch flag (--code 320: as SEND_BATCH_MESSAGE); figures are per
 *        message.  --binary: headers in RocketMQ's own serialisation.  --properties: more pairs for each message.
 *        --topics: to so many topics in turn, whose names are --topic with five digits behind it.
 * pull   RocketMQ PULL_MESSAGE (11) of --batch messages; of each record the queue, the queue offset, the topic and every byte of
 *        the body are compared with what `send` wrote.  A connection begins again at the end of its queue, or at --until.
 * pop    RocketMQ POP_MESSAGE (200050) of --batch messages of a connection's own queue, and when they are there BATCH_ACK_MESSAGE
 *        (200151) of all of them; records are compared as with pull, each offset comes once and in order, and no handle may be
 *        stale.  At the end of its queue, which is not before --until, a connection goes on with a group of a new name at the
 *        first offset.
 * redis  XADD of one field of --size bytes to the stream --topic; every reply must be a bulk string.
 * half   the same with TRAN_MSG, group bench-tx: a transaction is left open for every message.
 * transact  transactional producers with a window of transactions: a half (310 with TRAN_MSG), and when its
 *        reply is there END_TRANSACTION (37, commit) with the offsets that it gave; the commit's reply ends the pair,
 *        and all figures are per pair.  Both requests want an answer.
 * back   CONSUMER_SEND_MSG_BACK (36) of the messages whose log offsets --offsets names, in turn, with the longest delay level.
 * live   one more connection for each queue holds a pull at the queue's end; the others send.  Messages are counted when a
 *        consumer has them, and latency is from the time at which the message was due to be sent to its arrival.
 * fixed  the frames of send, any reply of a whole frame counts (for a server that answers with constant bytes).
 *
 * With --rate no more than so many requests a second are begun, on all connections together, and no more than the
 * windows hold; what was not begun in time is begun later.
 *
 * A run ends by --seconds or by --count, whichever comes first; then what is under way is waited for (10 s at most), so that
 * `answered` is exactly what the server has acknowledged since the run began.  It never outlives seconds + warmup + 20.
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

enum mode { SEND, PULL, POP, REDIS, FIXED, HALF, TRANSACT, BACK, LIVE };

#define CONNECTIONS_MAX 10240
#define WINDOW_MAX 4096
#define INPUT_BYTES (1 << 21)
#define OPAQUE_BASE 1000000000u
#define TURNS 100000u          /* opaques of one slot before they repeat; ends of transactions have as many of their own */
#define STAMP_DIGITS 16
#define DRAIN_NS 10000000000u

/* One request that may be under way.  Servers with several threads answer a window in any order. */
struct slot {
    unsigned opaque;       /* of the request under way; 0: none */
    uint64_t sent_ns;
    int ending;            /* transact: the half is answered and its end under way; pop: so many messages are being acknowledged */
};

struct connection {
    int fd;
    int writable;          /* 0 while the kernel refuses bytes */
    unsigned sent, done;   /* sequence numbers; sent - done is what is under way */
    struct slot *slots;    /* one for each request of the window */
    int *free_slots;
    int free_count;
    char *out;             /* requests not yet taken by the kernel */
    size_t out_len, out_at;
    char *in;
    size_t in_len;
    int queue;
    int is_consumer;       /* pulls; the others send */
    long long offset;      /* pull, pop: next queue offset; -1: to be asked for */
    int turn;              /* pop: how often the queue was read to its end; a part of the group's name */
};

static struct options {
    const char *host, *topic, *properties, *body, *offsets;
    int port, connections, window, size, queues, batch, pid, per, code, sysflag, is_binary, topics, invisible;
    enum mode mode;
    double seconds, warmup;
    long long count, until;
    double rate;
} opt = {.host = "127.0.0.1", .topic = "Bench", .properties = "", .connections = 1, .window = 1, .size = 1024, .queues = 8, .batch = 32,
         .per = 1, .code = 310, .invisible = 10000, .seconds = 2.0, .warmup = 0.5};

static char frame[1 << 21], payload[1 << 19];
static size_t frame_len, opaque_at, key_at, queue_at, topic_at, body_at, first_key_at, message_len;
static unsigned long long messages, errors, bytes_in, begun, answered_all, received_all, pops_all;
static long long run_id;       /* pop: groups of a run have names of their own */
static long long *back_offsets;
static size_t back_count;
static int unready = 1;        /* nothing is sent before the clock starts and, in live mode, every consumer knows its offset */
static uint64_t began_ns;
static int measuring, is_over;
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

static void finish_frame(int header_len, const char *body, size_t body_len) {
    put32(frame, (uint32_t)(4 + header_len) + (uint32_t)body_len);
    put32(frame + 4, (uint32_t)header_len | (opt.is_binary ? 1u << 24 : 0));
    body_at = 8 + (size_t)header_len;
    memcpy(frame + body_at, body, body_len);
    frame_len = body_at + body_len;
}

/* One pair of a header: its key and what it says, of which control characters are escaped in JSON. */
static char *put_field(char *at, const char *key, const char *value) {
    if (opt.is_binary) {
        size_t n = strlen(key), m = strlen(value);
        *at++ = (char)(n >> 8); *at++ = (char)n;
        memcpy(at, key, n); at += n;
        put32(at, (uint32_t)m);
        memcpy(at + 4, value, m);
        return at + 4 + m;
    }
    at += sprintf(at, "%s\"%s\":\"", at[-1] == '{' ? "" : ",", key);
    for (; *value; value++) {
        if (*value < ' ') at += sprintf(at, "\\u%04x", *value);
        else *at++ = *value;
    }
    *at++ = '"';
    return at;
}

/* The messages of a batch, as MessageDecoder.encodeMessage of RocketMQ writes them. */
static size_t build_batch(char *at, const char *pairs) {
    size_t n = strlen(pairs);
    message_len = 22 + (size_t)opt.size + n;
    for (int i = 0; i < opt.per; i++, at += message_len) {
        put32(at, (uint32_t)message_len);
        memset(at + 4, 0, 12);
        put32(at + 16, (uint32_t)opt.size);
        memcpy(at + 20, payload, (size_t)opt.size);
        at[20 + opt.size] = (char)(n >> 8); at[21 + opt.size] = (char)n;
        memcpy(at + 22 + opt.size, pairs, n);
    }
    first_key_at = 22 + (size_t)opt.size + (size_t)(strstr(pairs, "0B0000") - pairs) + 6;
    return message_len * (size_t)opt.per;
}

static void build_send(void) {
    static char batch[1 << 20];
    int is_half = opt.mode == HALF || opt.mode == TRANSACT;
    char pairs[1024], number[32], topic[160];
    snprintf(pairs, sizeof pairs, "UNIQ_KEY\1%s%08d\2WAIT\1true\2%s%s", "7F00000100002A9F1B0B0000", 0,
             is_half ? "TRAN_MSG\1true\2PGROUP\1bench-tx\2" : "", opt.properties);
    char *at = frame + 8;
    if (opt.is_binary) {
        at[0] = (char)(opt.code >> 8); at[1] = (char)opt.code;
        at[2] = 0;  /* JAVA */
        at[3] = 401 >> 8; at[4] = (char)(401 & 255);
        opaque_at = 8 + 5;
        memset(at + 9, 0, 12);  /* flag, no remark, and the length of the pairs, which is put when they are there */
        at += 21;
    } else at += sprintf(at, "{\"code\":%d,\"extFields\":{", opt.code);
    char *fields = at;
    at = put_field(at, "a", is_half ? "bench-tx" : "bench");
    snprintf(topic, sizeof topic, "%s%s", opt.topic, opt.topics ? "00000" : "");
    at = put_field(at, "b", topic);
    topic_at = (size_t)(at - frame) - (opt.is_binary ? 5 : 6);
    at = put_field(at, "c", "TBW102");
    snprintf(number, sizeof number, "%d", opt.queues);
    at = put_field(at, "d", number);
    at = put_field(at, "e", "0000");
    queue_at = (size_t)(at - frame) - (opt.is_binary ? 4 : 5);
    snprintf(number, sizeof number, "%d", is_half ? 4 : opt.sysflag);
    at = put_field(at, "f", number);
    snprintf(number, sizeof number, "%lld", (long long)time(NULL) * 1000);
    at = put_field(at, "g", number);
    at = put_field(at, "h", "0");
    at = put_field(at, "i", opt.per > 1 ? "WAIT\1true\2" : pairs);
    key_at = (size_t)((char *)memmem(frame, (size_t)(at - frame), opt.per > 1 ? "WAIT" : "0B0000", opt.per > 1 ? 4 : 6) - frame) + 6;
    at = put_field(at, "j", "0");
    at = put_field(at, "k", "false");
    at = put_field(at, "m", opt.per > 1 ? "true" : "false");
    if (opt.is_binary) put32(fields - 4, (uint32_t)(at - fields));
    else {
        at += sprintf(at, "},\"flag\":0,\"language\":\"JAVA\",\"opaque\":1000000000,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":401}");
        opaque_at = (size_t)(strstr(fields, "\"opaque\":") - frame) + 9;
    }
    size_t body_len = opt.per > 1 ? build_batch(batch, pairs) : (size_t)opt.size;
    finish_frame((int)(at - frame) - 8, opt.per > 1 ? batch : payload, body_len);
}

static void build_redis(void) {
    int n = sprintf(frame, "*5\r\n$4\r\nXADD\r\n$%zu\r\n%s\r\n$1\r\n*\r\n$1\r\nf\r\n$%d\r\n", strlen(opt.topic), opt.topic, opt.size);
    memset(frame + n, 'x', (size_t)opt.size);
    memcpy(frame + n + opt.size, "\r\n", 2);
    frame_len = (size_t)(n + opt.size + 2);
}

static size_t build_pull(char *at, struct connection *c, unsigned opaque) {
    int n = sprintf(at + 8,
        "{\"code\":11,\"extFields\":{\"commitOffset\":\"0\",\"consumerGroup\":\"bench\",\"expressionType\":\"TAG\",\"maxMsgNums\":\"%d\","
        "\"queueId\":\"%d\",\"queueOffset\":\"%lld\",\"subVersion\":\"0\",\"subscription\":\"*\",\"suspendTimeoutMillis\":\"%d\",\"sysFlag\":\"%d\",\"topic\":\"%s\"},"
        "\"flag\":0,\"language\":\"JAVA\",\"opaque\":%u,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":401}",
        opt.batch, c->queue, c->offset, opt.mode == LIVE ? 15000 : 0, opt.mode == LIVE ? 6 : 4, opt.topic, opaque);
    put32(at, (uint32_t)(4 + n));
    put32(at + 4, (uint32_t)n);
    return (size_t)(8 + n);
}

static int put_group(char *at, const struct connection *c) { return sprintf(at, "pop-%lld-%d", run_id, c->turn); }

static size_t build_pop(char *at, struct connection *c, unsigned opaque) {
    char group[64];
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    put_group(group, c);
    int n = sprintf(at + 8,
        "{\"code\":200050,\"extFields\":{\"bornTime\":\"%lld\",\"consumerGroup\":\"%s\",\"initMode\":\"0\",\"invisibleTime\":\"%d\",\"maxMsgNums\":\"%d\","
        "\"order\":\"false\",\"pollTime\":\"0\",\"queueId\":\"%d\",\"topic\":\"%s\"},"
        "\"flag\":0,\"language\":\"JAVA\",\"opaque\":%u,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":453}",
        (long long)t.tv_sec * 1000 + t.tv_nsec / 1000000, group, opt.invisible, opt.batch, c->queue, opt.topic, opaque);
    put32(at, (uint32_t)(4 + n));
    put32(at + 4, (uint32_t)n);
    return (size_t)(8 + n);
}

/* All `count` messages from `start` on are done; a bit set of Java, in base64. */
static size_t build_batch_ack(char *at, struct connection *c, unsigned opaque, long long start, unsigned count, long long revive, long long popped_ms) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned char bits[6] = {0};
    char group[64], base64[9], body[1024];
    for (unsigned i = 0; i < count; i++) bits[i / 8] |= (unsigned char)(1u << i % 8);
    for (int i = 0; i < 2; i++) {
        unsigned three = (unsigned)bits[3 * i] << 16 | (unsigned)bits[3 * i + 1] << 8 | bits[3 * i + 2];
        for (int j = 0; j < 4; j++) base64[4 * i + j] = digits[three >> (18 - 6 * j) & 63];
    }
    base64[8] = 0;
    put_group(group, c);
    int n = sprintf(at + 8,
        "{\"code\":200151,\"flag\":0,\"language\":\"JAVA\",\"opaque\":%u,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":453}", opaque);
    int m = sprintf(body,
        "{\"acks\":[{\"b\":\"%s\",\"c\":\"%s\",\"it\":%d,\"pt\":%lld,\"q\":%d,\"r\":\"0\",\"rq\":%lld,\"so\":%lld,\"t\":\"%s\"}],\"brokerName\":\"broker-a\"}",
        base64, group, opt.invisible, popped_ms, c->queue, revive, start, opt.topic);
    memcpy(at + 8 + n, body, (size_t)m);
    put32(at, (uint32_t)(4 + n + m));
    put32(at + 4, (uint32_t)n);
    return (size_t)(8 + n + m);
}

/* Where the queue of a connection ends: asked before its first held pull. */
static size_t build_end_of_queue(char *at, struct connection *c, unsigned opaque) {
    int n = sprintf(at + 8,
        "{\"code\":30,\"extFields\":{\"queueId\":\"%d\",\"topic\":\"%s\"},"
        "\"flag\":0,\"language\":\"JAVA\",\"opaque\":%u,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":401}",
        c->queue, opt.topic, opaque);
    put32(at, (uint32_t)(4 + n));
    put32(at + 4, (uint32_t)n);
    return (size_t)(8 + n);
}

/* A message given back by its consumer; the longest delay level, so that no delivery falls into the measured seconds. */
static size_t build_back(char *at, unsigned opaque, long long log_offset) {
    int n = sprintf(at + 8,
        "{\"code\":36,\"extFields\":{\"delayLevel\":\"18\",\"group\":\"bench-back\",\"maxReconsumeTimes\":\"16\",\"offset\":\"%lld\","
        "\"originMsgId\":\"7F00000100002A9F1B0B000000000000\",\"originTopic\":\"%s\",\"unitMode\":\"false\"},"
        "\"flag\":0,\"language\":\"JAVA\",\"opaque\":%u,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":401}",
        log_offset, opt.topic, opaque);
    put32(at, (uint32_t)(4 + n));
    put32(at + 4, (uint32_t)n);
    return (size_t)(8 + n);
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

static int is_in_order(void) { return opt.mode == REDIS || opt.mode == FIXED; }

/* Whether another request is due; without --rate always. */
static int is_due(void) {
    if (is_over || unready) return 0;
    return opt.rate <= 0 || (double)begun < opt.rate * (double)(now_ns() - began_ns) / 1e9;
}

static void enqueue_send(struct connection *c, int index, unsigned opaque, uint64_t due) {
    static unsigned serial;
    if (opt.is_binary) put32(frame + opaque_at, opaque);
    else if (opt.mode != REDIS) patch_digits(opaque_at, opaque, 10);
    if (opt.mode != REDIS) patch_digits(queue_at, (unsigned)(index + (int)c->sent) % (unsigned)opt.queues, 4);
    if (opt.topics) patch_digits(topic_at, serial % (unsigned)opt.topics, 5);
    if (opt.mode != REDIS && opt.per == 1) patch_digits(key_at, ++serial % 100000000u, 8);
    for (int i = 0; opt.per > 1 && i < opt.per; i++)
        patch_digits(body_at + (size_t)i * message_len + first_key_at, ++serial % 100000000u, 8);
    if (opt.mode == LIVE) {
        static const char hex[] = "0123456789abcdef";
        for (int i = 0; i < STAMP_DIGITS; i++) frame[body_at + (size_t)i] = hex[due >> (60 - 4 * i) & 15];
    }
    memcpy(c->out + c->out_len, frame, frame_len);
    c->out_len += frame_len;
}

static void enqueue(struct connection *c, int index) {
    int at = is_in_order() ? (int)(c->sent % (unsigned)opt.window) : c->free_slots[--c->free_count];
    struct slot *slot = &c->slots[at];
    uint64_t now = now_ns(), due = opt.rate > 0 ? began_ns + (uint64_t)((double)begun * 1e9 / opt.rate) : now;
    slot->opaque = OPAQUE_BASE + c->sent % TURNS * WINDOW_MAX + (unsigned)at;
    slot->sent_ns = now;
    slot->ending = 0;
    if (c->is_consumer) {
        char *to = c->out + c->out_len;
        c->out_len += opt.mode == POP ? build_pop(to, c, slot->opaque) : c->offset < 0 ? build_end_of_queue(to, c, slot->opaque) : build_pull(to, c, slot->opaque);
    } else if (opt.mode == BACK) {
        static size_t next;
        c->out_len += build_back(c->out + c->out_len, slot->opaque, back_offsets[next++ % back_count]);
    } else enqueue_send(c, index, slot->opaque, due);
    c->sent++;
}

static void pump(struct connection *c, int index) {
    if (c->is_consumer && opt.mode == LIVE) { if (c->sent == c->done) enqueue(c, index); }
    else while ((int)(c->sent - c->done) < opt.window && is_due()) { enqueue(c, index); begun++; }
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

/* Of a record: queue at 12, queue offset at 20, body length at 84, body; then the topic (IPv4 hosts, format of one-byte topics). */
static int is_as_sent(struct connection *c, const char *at, size_t size, uint64_t now) {
    size_t body = get32(at + 84), topic = strlen(opt.topic), stamp = opt.mode == LIVE ? STAMP_DIGITS : 0;
    if ((int)get32(at + 12) != c->queue || (long long)((uint64_t)get32(at + 20) << 32 | get32(at + 24)) != c->offset) return 0;
    if (body != (size_t)opt.size || size < 88 + body + 1 + topic || (size_t)at[88 + body] != topic) return 0;
    if (memcmp(at + 88 + stamp, payload + stamp, body - stamp) || memcmp(at + 89 + body, opt.topic, topic)) return 0;
    if (stamp && measuring) {
        char digits[STAMP_DIGITS + 1] = {0};
        memcpy(digits, at + 88, STAMP_DIGITS);
        uint64_t due = strtoull(digits, NULL, 16);
        histogram[bucket(now > due ? now - due : 1)]++;
    }
    return 1;
}

static unsigned walk_records(struct connection *c, const char *body, size_t n) {
    unsigned count = 0;
    uint64_t now = now_ns();
    while (n >= 8) {
        uint32_t size = get32(body), magic = get32(body + 4);
        if (size < 91 || size > n || magic != 0xDAA320A7u) { wrong("bad record in a pull reply", "", 0); return count; }
        if (!is_as_sent(c, body, size, now)) { wrong("a record differs from what was sent", "", 0); return count; }
        body += size; n -= size; count++; c->offset++;
    }
    if (n) wrong("rest behind the last record of a pull reply", "", 0);
    return count;
}

/* A request ends with n messages. */
static void answered(struct connection *c, struct slot *slot, unsigned n) {
    uint64_t took = now_ns() - slot->sent_ns;
    slot->opaque = 0;
    c->done++;
    if (!is_in_order()) c->free_slots[c->free_count++] = (int)(slot - c->slots);
    if (c->is_consumer) received_all += n;
    else answered_all += n;
    if (!measuring || (opt.mode == LIVE && !c->is_consumer)) return;
    if (opt.mode != LIVE) histogram[bucket(took)]++;
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
static void end_half(struct connection *c, struct slot *slot, const char *header, size_t n) {
    const char *id = "", *message_id = "";
    int id_len = text_of(header, n, "\"transactionId\":\"", &id);
    int message_len = text_of(header, n, "\"msgId\":\"", &message_id);
    if (message_len < 32 || message_len > 56) { wrong("a half's reply without msgId", header, n); answered(c, slot, 1); return; }
    char hex[17] = {0};
    memcpy(hex, message_id + message_len - 16, 16);
    slot->opaque += TURNS * WINDOW_MAX;  /* a half that is answered twice is not a commit */
    c->out_len += build_end(c->out + c->out_len, slot->opaque,
                            number_of(header, n, "\"queueOffset\":"), strtoll(hex, NULL, 16), id, id_len);
    slot->ending = 1;
}

static void take_pulled(struct connection *c, struct slot *slot, long long code, const char *header, size_t header_len, size_t n) {
    unsigned found = 0;
    if (c->offset < 0) {
        if (code != 0) wrong("a queue's end is not known", header, header_len);
        c->offset = number_of(header, header_len, "\"offset\":");
        unready--;
    } else if (code == 0) {
        found = walk_records(c, header + header_len, n - 8 - header_len);
        if (number_of(header, header_len, "\"nextBeginOffset\":") != c->offset) wrong("a pull's next offset", header, header_len);
        if (opt.until && c->offset >= opt.until) c->offset = 0;
    } else if (code != 19 && code != 20 && code != 21) wrong("pull refused", header, header_len);
    else if (opt.mode == PULL) c->offset = 0;
    answered(c, slot, found);
}

/* The answer of a pop: acknowledge what came.  Without messages: another try, by a new group at the end of the queue. */
static void take_popped(struct connection *c, struct slot *slot, long long code, const char *header, size_t header_len, size_t n) {
    const char *start_info = "", *offsets = "";
    long long begin = c->offset;
    if (code != 0) {
        if (code != 209 && code != 210 && code != 19 && code != 20 && code != 21) wrong("pop refused", header, header_len);
        else if (c->offset >= opt.until && !number_of(header, header_len, "\"restNum\":")) { c->offset = 0; c->turn++; }
        answered(c, slot, 0);
        return;
    }
    unsigned found = walk_records(c, header + header_len, n - 8 - header_len);
    int flag = -1, queue = -1, start_len = text_of(header, header_len, "\"startOffsetInfo\":\"", &start_info);
    int offsets_len = text_of(header, header_len, "\"msgOffsetInfo\":\"", &offsets), commas = 0;
    long long start = -1;
    for (int i = 0; i < offsets_len; i++) commas += offsets[i] == ',';
    if (memchr(start_info, ';', (size_t)start_len) || sscanf(start_info, "%d %d %lld", &flag, &queue, &start) != 3 || flag != 0 ||
        queue != c->queue || start != begin || found == 0 || found > (unsigned)opt.batch || (unsigned)commas + 1 != found)
        wrong("a pop's handles", header, header_len);
    slot->opaque += TURNS * WINDOW_MAX;
    slot->ending = (int)found;
    pops_all++;
    c->out_len += build_batch_ack(c->out + c->out_len, c, slot->opaque, start, found, number_of(header, header_len, "\"reviveQid\":"),
                                  number_of(header, header_len, "\"popTime\":"));
}

static void take_frame(struct connection *c, const char *at, size_t n) {
    size_t header_len = get32(at + 4) & 0xffffff;
    const char *header = at + 8;
    if (header_len > n - 8) { wrong("header longer than its frame", at, 0); return; }
    if (opt.mode == FIXED) { answered(c, &c->slots[c->done % (unsigned)opt.window], (unsigned)opt.per); return; }
    long long code, opaque;
    if (at[4] == 1 && header_len >= 9) { code = (unsigned char)header[0] << 8 | (unsigned char)header[1]; opaque = get32(header + 5); }
    else { code = number_of(header, header_len, "\"code\":"); opaque = number_of(header, header_len, "\"opaque\":"); }
    unsigned place = (unsigned)(opaque - OPAQUE_BASE) % WINDOW_MAX;
    if (place >= (unsigned)opt.window || (long long)c->slots[place].opaque != opaque) { wrong("unexpected opaque", header, header_len); return; }
    struct slot *slot = &c->slots[place];
    if (opt.mode == POP && slot->ending) {
        if (code != 0 || n - 8 - header_len) wrong("an acknowledgement was refused, or a handle was stale", header, n - 8);
        answered(c, slot, (unsigned)slot->ending);
        return;
    }
    if (opt.mode == POP) { take_popped(c, slot, code, header, header_len, n); return; }
    if (c->is_consumer) { take_pulled(c, slot, code, header, header_len, n); return; }
    if (code != 0) wrong(opt.mode == TRANSACT ? slot->ending ? "commit refused" : "half refused" : opt.mode == BACK ? "send-back refused" : "send refused", header, header_len);
    else if (opt.mode == TRANSACT && !slot->ending) { end_half(c, slot, header, header_len); return; }
    answered(c, slot, (unsigned)opt.per);
}

static void consume_input(struct connection *c) {
    size_t at = 0;
    while (c->in_len - at >= 4) {
        if (opt.mode == REDIS) {
            char *end = memmem(c->in + at, c->in_len - at, "\r\n", 2);
            if (!end) break;
            if (c->in[at] != '$') { wrong("redis refused", c->in + at, (size_t)(end - c->in) - at); at = (size_t)(end - c->in) + 2; answered(c, &c->slots[c->done % (unsigned)opt.window], 1); continue; }
            size_t whole = (size_t)(end - c->in) + 2 + (size_t)atoi(c->in + at + 1) + 2;
            if (whole > c->in_len) break;
            at = whole;
            answered(c, &c->slots[c->done % (unsigned)opt.window], 1);
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
    c->is_consumer = opt.mode == PULL || opt.mode == POP || (opt.mode == LIVE && index < opt.queues);
    c->offset = opt.mode == LIVE ? -1 : 0;
    c->in = malloc(INPUT_BYTES);
    c->out = malloc(((size_t)opt.window + 2) * (frame_len + 1024) + (1u << 17));
    c->slots = calloc((size_t)opt.window, sizeof *c->slots);
    c->free_slots = malloc((size_t)opt.window * sizeof *c->free_slots);
    for (int i = opt.window; c->free_slots && i > 0;) c->free_slots[c->free_count++] = --i;
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.u32 = (uint32_t)index};
    if (!c->in || !c->out || !c->slots || !c->free_slots || epoll_ctl(poll, EPOLL_CTL_ADD, c->fd, &e)) die("connection");
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

static void read_body(void) {
    memset(payload, 'x', sizeof payload);
    if (!opt.body) return;
    FILE *f = fopen(opt.body, "rb");
    if (!f) die(opt.body);
    opt.size = (int)fread(payload, 1, sizeof payload, f);
    fclose(f);
}

/* Decimal numbers, one a line. */
static void read_offsets(void) {
    FILE *f = fopen(opt.offsets, "r");
    if (!f || !(back_offsets = calloc(1 << 20, sizeof *back_offsets))) die(opt.offsets);
    while (back_count < 1 << 20 && fscanf(f, "%lld", &back_offsets[back_count]) == 1) back_count++;
    fclose(f);
    if (!back_count) { fprintf(stderr, "loadgen: no offsets\n"); exit(2); }
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
        else if (!strcmp(k, "--topics")) opt.topics = atoi(v);
        else if (!strcmp(k, "--per")) opt.per = atoi(v);
        else if (!strcmp(k, "--code")) opt.code = atoi(v);
        else if (!strcmp(k, "--sysflag")) opt.sysflag = atoi(v);
        else if (!strcmp(k, "--properties")) opt.properties = v;
        else if (!strcmp(k, "--binary")) opt.is_binary = atoi(v) != 0;
        else if (!strcmp(k, "--until")) opt.until = atoll(v);
        else if (!strcmp(k, "--invisible")) opt.invisible = atoi(v);
        else if (!strcmp(k, "--offsets")) opt.offsets = v;
        else if (!strcmp(k, "--body")) opt.body = v;
        else if (!strcmp(k, "--seconds")) opt.seconds = atof(v);
        else if (!strcmp(k, "--warmup")) opt.warmup = atof(v);
        else if (!strcmp(k, "--mode")) opt.mode = !strcmp(v, "pull") ? PULL : !strcmp(v, "pop") ? POP : !strcmp(v, "redis") ? REDIS : !strcmp(v, "fixed") ? FIXED :
                                               !strcmp(v, "half") ? HALF : !strcmp(v, "transact") ? TRANSACT : !strcmp(v, "back") ? BACK :
                                               !strcmp(v, "live") ? LIVE : SEND;
        else { fprintf(stderr, "loadgen: unknown option %s\n", k); exit(2); }
    }
    if (opt.port <= 0 || opt.connections < 1 || opt.connections > CONNECTIONS_MAX || opt.window < 1 || opt.window > WINDOW_MAX ||
        opt.size < 0 || opt.size > (1 << 19) || opt.queues < 1 || opt.queues > 9999 || strlen(opt.topic) > 127 || opt.per < 1 || strlen(opt.properties) > 512 ||
        (size_t)opt.per * ((size_t)opt.size + 1024) > 1 << 20 || (opt.mode == BACK) != (opt.offsets != NULL) ||
        opt.topics < 0 || opt.topics > 99999 || (opt.topics && opt.mode != SEND) || (opt.is_binary && opt.mode != SEND) || (opt.per > 1 && opt.mode != SEND && opt.mode != FIXED) ||
        (opt.mode == POP && (opt.window != 1 || opt.batch > 32 || opt.until < 1 || opt.connections > opt.queues)) ||
        (opt.mode == LIVE && (opt.connections <= opt.queues || opt.size < STAMP_DIGITS))) {
        fprintf(stderr, "loadgen: an option is missing or out of range\n");
        exit(2);
    }
}

/* What is due, from where the last time ended: no connection is preferred. */
static void pump_due(struct connection *connections) {
    static int next;
    for (int i = 0; i < opt.connections && is_due(); i++, next = (next + 1) % opt.connections) pump(&connections[next], next);
}

/* How long to wait for replies: with --rate until the next request is due. */
static struct timespec patience(void) {
    struct timespec t = {.tv_nsec = 100000000};
    if (opt.rate <= 0 || is_over || unready) return t;
    double ns = (double)(begun + 1) * 1e9 / opt.rate - (double)(now_ns() - began_ns);
    t.tv_nsec = ns < 50000 ? 50000 : ns > 1e8 ? 100000000 : (long)ns;
    return t;
}

/* Wait for events once and serve them. */
static void turn(int poll, struct connection *connections) {
    static struct epoll_event events[CONNECTIONS_MAX];
    struct timespec t = patience();
    int n = epoll_pwait2(poll, events, CONNECTIONS_MAX, &t, NULL);
    if (opt.rate > 0) pump_due(connections);
    for (int i = 0; i < n; i++) serve(&connections[events[i].data.u32], (int)events[i].data.u32, events[i].events);
}

/* After the last measured request: until nothing is under way, and in live mode until everything has arrived. */
static void drain(int poll, struct connection *connections) {
    uint64_t end = now_ns() + DRAIN_NS;
    for (int under_way = 1; under_way;) {
        if (now_ns() > end) { wrong("requests without an answer after the end", "", 0); return; }
        turn(poll, connections);
        under_way = opt.mode == LIVE && received_all < answered_all;
        for (int i = 0; i < opt.connections; i++)
            under_way |= !(opt.mode == LIVE && connections[i].is_consumer) && connections[i].sent != connections[i].done;
    }
    if (opt.mode == LIVE && received_all != answered_all) wrong("more arrived than was sent", "", 0);
}

int main(int argc, char **argv) {
    static struct connection connections[CONNECTIONS_MAX];
    parse(argc, argv);
    read_body();
    if (opt.mode == REDIS) build_redis();
    else if (opt.mode == BACK) read_offsets();
    else if (opt.mode != PULL && opt.mode != POP) build_send();
    run_id = (long long)(now_ns() / 1000000);
    int poll = epoll_create1(0);
    unready = 1 + (opt.mode == LIVE ? opt.queues : 0);
    for (int i = 0; i < opt.connections; i++) open_connection(&connections[i], i, poll);
    for (int i = 0; i < opt.connections; i++) if (opt.mode == LIVE && connections[i].is_consumer) pump(&connections[i], i);
    uint64_t asked = now_ns();
    while (unready > 1) {
        turn(poll, connections);
        if (now_ns() > asked + DRAIN_NS) { fprintf(stderr, "loadgen: the end of a queue is not known\n"); exit(2); }
    }
    began_ns = now_ns();
    unready = 0;
    if (opt.rate > 0) pump_due(connections);
    else for (int i = 0; i < opt.connections; i++) pump(&connections[i], i);
    uint64_t begin = now_ns(), start = begin + (uint64_t)(opt.warmup * 1e9), end = start + (uint64_t)(opt.seconds * 1e9), cpu = 0, began = 0;
    for (;;) {
        turn(poll, connections);
        uint64_t now = now_ns();
        if (!measuring && now >= start) { measuring = 1; began = now; cpu = opt.pid ? cpu_ns(opt.pid) : 0; }
        if (now >= end || (opt.count && messages >= (unsigned long long)opt.count)) break;
    }
    double took = (double)(now_ns() - began) / 1e9;
    double cpu_us = opt.pid && messages ? (double)(cpu_ns(opt.pid) - cpu) / 1000.0 / (double)messages : -1;
    unsigned long long measured = messages;
    measuring = 0;
    is_over = 1;
    drain(poll, connections);
    printf("{\"messages\":%llu,\"seconds\":%.3f,\"rate\":%.0f,\"p50_us\":%.1f,\"p99_us\":%.1f,\"p999_us\":%.1f,\"cpu_us_per_message\":%.3f,\"answered\":%llu,\"received\":%llu,\"pops\":%llu,\"errors\":%llu,\"first_error\":\"",
           measured, took, (double)measured / took, quantile_us(.5), quantile_us(.99), quantile_us(.999), cpu_us, answered_all, received_all, pops_all, errors);
    for (const char *p = first_error; *p; p++) if (*p >= ' ' && *p != '"' && *p != '\\') putchar(*p);
    printf("\"}\n");
    return errors ? 1 : 0;
}
