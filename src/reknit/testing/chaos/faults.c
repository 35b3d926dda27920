/* Preloaded into a node, so that its disk and its clock can fail while it runs.
 *
 * The file that CHAOS_CONTROL names holds three 64-bit integers: seconds that the clock is ahead, whether syncs fail,
 * and whether the disk is full. `preload.py` writes it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *control;

__attribute__((constructor)) static void open_control(void) {
    const char *path = getenv("CHAOS_CONTROL");
    int fd = path ? open(path, O_RDONLY) : -1;
    if (fd < 0) return;
    void *found = mmap(NULL, 3 * sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    if (found != MAP_FAILED) control = found;
    close(fd);
}

static int64_t ahead_s(void) { return control ? control[0] : 0; }
static int syncs_fail(void) { return control && control[1]; }

static int is_full(int fd) {
    struct stat found;
    return control && control[2] && fd > 2 && fstat(fd, &found) == 0 && S_ISREG(found.st_mode);
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

int clock_gettime(clockid_t clock, struct timespec *at) {
    REAL(int, "clock_gettime", clockid_t, struct timespec *);
    int result = real(clock, at);
    if (result == 0 && clock == CLOCK_REALTIME) at->tv_sec += ahead_s();
    return result;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    REAL(int, "gettimeofday", struct timeval *, void *);
    int result = real(at, zone);
    if (result == 0) at->tv_sec += ahead_s();
    return result;
}

time_t time(time_t *at) {
    REAL(time_t, "time", time_t *);
    time_t found = real(NULL) + ahead_s();
    if (at) *at = found;
    return found;
}

#define SYNC(name, parameters, arguments, ...) \
    int name parameters { \
        REAL(int, #name, __VA_ARGS__); \
        if (syncs_fail()) { errno = EIO; return -1; } \
        return real arguments; \
    }
SYNC(fsync, (int fd), (fd), int)
SYNC(fdatasync, (int fd), (fd), int)
SYNC(msync, (void *at, size_t size, int flags), (at, size, flags), void *, size_t, int)

#define WRITE(name, parameters, arguments, ...) \
    ssize_t name parameters { \
        REAL(ssize_t, #name, __VA_ARGS__); \
        if (is_full(fd)) { errno = ENOSPC; return -1; } \
        return real arguments; \
    }
WRITE(write, (int fd, const void *data, size_t size), (fd, data, size), int, const void *, size_t)
WRITE(pwrite, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at), int, const void *, size_t, off_t)
WRITE(pwrite64, (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at), int, const void *, size_t, off64_t)
WRITE(writev, (int fd, const struct iovec *parts, int count), (fd, parts, count), int, const struct iovec *, int)
WRITE(pwritev, (int fd, const struct iovec *parts, int count, off_t at), (fd, parts, count, at), int, const struct iovec *, int, off_t)
WRITE(pwritev64, (int fd, const struct iovec *parts, int count, off64_t at), (fd, parts, count, at), int, const struct iovec *, int, off64_t)
WRITE(pwritev2, (int fd, const struct iovec *parts, int count, off_t at, int flags), (fd, parts, count, at, flags), int, const struct iovec *, int, off_t, int)
WRITE(pwritev64v2, (int fd, const struct iovec *parts, int count, off64_t at, int flags), (fd, parts, count, at, flags), int, const struct iovec *, int, off64_t, int)

#define ALLOCATE(name, offset) \
    int name(int fd, offset at, offset size) { \
        REAL(int, #name, int, offset, offset); \
        return is_full(fd) ? ENOSPC : real(fd, at, size); \
    }
ALLOCATE(posix_fallocate, off_t)
ALLOCATE(posix_fallocate64, off64_t)
