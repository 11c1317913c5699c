/* PID 1 of a pod's sandbox and of a node: waits, reaps what others left behind, goes when it is told to. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void go(int number) {
    (void)number;
    _exit(0);
}

static void reap(int number) {
    (void)number;
    while (waitpid(-1, 0, WNOHANG) > 0) {
    }
}

int main(void) {
    signal(SIGINT, go);
    signal(SIGTERM, go);
    signal(SIGCHLD, reap);
    for (;;) pause();
}
