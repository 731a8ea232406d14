/*
 * A wall clock that tests step, for a program of Linux that is linked dynamically: built as a shared library, LD_PRELOAD puts it before the
 * C library.
 *
 * WALL_CLOCK names a symbolic link, whose target is no file but a whole number of seconds, which is added to what the system says. It is read
 * at each call, so that renaming a new link over it steps the clock of a program that runs; and reading a link takes no descriptor, which a
 * program may have run out of. Every other clock stays as it is. Nothing is shared with other processes and nothing is left behind, however
 * the program ends.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long long offset_s(void)
{
    char digits[32];
    const char *path = getenv("WALL_CLOCK");
    int kept_errno = errno;
    ssize_t length = path ? readlink(path, digits, sizeof digits - 1) : -1;

    errno = kept_errno;
    if (length <= 0)
        return 0;
    digits[length] = '\0';
    return strtoll(digits, NULL, 10);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    /* The system call, since this function stands where the library's own does. */
    int failed = (int)syscall(SYS_clock_gettime, clock, now);

    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += offset_s();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec precise;
    int failed = clock_gettime(CLOCK_REALTIME, &precise);

    (void)zone;
    if (!failed) {
        now->tv_sec = precise.tv_sec;
        now->tv_usec = precise.tv_nsec / 1000;
    }
    return failed;
}

time_t time(time_t *kept)
{
    struct timespec precise;

    if (clock_gettime(CLOCK_REALTIME, &precise))
        return -1;
    if (kept)
        *kept = precise.tv_sec;
    return precise.tv_sec;
}
