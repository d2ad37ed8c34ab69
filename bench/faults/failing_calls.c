/* Preloaded into every process of a command: lets calls fail, or sets the clock.
 *
 * FAULT_CALL   write, rename, open or fsync: which calls fail
 * FAULT_BELOW  the folder on whose files they fail
 * FAULT_AFTER  how many calls of a process succeed before
 * FAULT_ERRNO  with what the later ones fail; 0: they only take FAULT_DELAY microseconds longer
 * FAULT_STRUCK a file elsewhere, which is made when a call fails
 * FAULT_CLOCK  seconds by which the clock of the day jumps FAULT_AFTER calls after a process has started
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int number(const char *name) {
    const char *text = getenv(name);
    return text ? atoi(text) : 0;
}

static int is_below(const char *path) {
    const char *below = getenv("FAULT_BELOW");
    return below && strncmp(path, below, strlen(below)) == 0;
}

static int is_due(const char *call, const char *path) {
    static int calls;
    const char *chosen = getenv("FAULT_CALL");
    if (!chosen || strcmp(chosen, call) != 0 || !is_below(path)) return 0;
    if (__atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST) <= number("FAULT_AFTER")) return 0;
    if (number("FAULT_DELAY")) usleep(number("FAULT_DELAY"));
    if (getenv("FAULT_STRUCK")) close(creat(getenv("FAULT_STRUCK"), 0600));
    errno = number("FAULT_ERRNO");
    return errno != 0;
}

static int is_due_for(const char *call, int descriptor) {
    char link[64], path[4096] = "";
    if (!getenv("FAULT_CALL") || strcmp(getenv("FAULT_CALL"), call) != 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    return readlink(link, path, sizeof path - 1) > 0 && is_due(call, path);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int descriptor, const void *from, size_t count) {
    return is_due_for("write", descriptor) ? -1 : REAL(write)(descriptor, from, count);
}

ssize_t pwrite64(int descriptor, const void *from, size_t count, off64_t at) {
    return is_due_for("write", descriptor) ? -1 : REAL(pwrite64)(descriptor, from, count, at);
}

int fsync(int descriptor) { return is_due_for("fsync", descriptor) ? -1 : REAL(fsync)(descriptor); }

int fdatasync(int descriptor) { return is_due_for("fsync", descriptor) ? -1 : REAL(fdatasync)(descriptor); }

int rename(const char *from, const char *to) { return is_due("rename", to) ? -1 : REAL(rename)(from, to); }

int mkdir(const char *path, mode_t mode) { return is_due("open", path) ? -1 : REAL(mkdir)(path, mode); }

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return flags & O_CREAT && is_due("open", path) ? -1 : REAL(open64)(path, flags, mode);
}

int open(const char *path, int flags, ...) __attribute__((alias("open64")));  // with 64 bits they are the same

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int calls;
    int code = REAL(clock_gettime)(clock, now);
    if (clock == CLOCK_REALTIME && getenv("FAULT_CLOCK"))
        if (__atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST) > number("FAULT_AFTER"))
            now->tv_sec += number("FAULT_CLOCK");
    return code;
}
