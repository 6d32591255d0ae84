/* A wall clock that jumps by days, back and forth, whenever somebody looks at it. Loaded with LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <sys/time.h>
#include <time.h>

static long jump(void) {
    static _Atomic long looks;
    long look = ++looks;
    return (look % 2 ? 1 : -1) * 86400L * (look % 400);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, now);
    if (!failed && clock == CLOCK_REALTIME) now->tv_sec += jump();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec told;
    int failed = clock_gettime(CLOCK_REALTIME, &told);
    now->tv_sec = told.tv_sec;
    now->tv_usec = told.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *now) {
    struct timespec told;
    clock_gettime(CLOCK_REALTIME, &told);
    if (now) *now = told.tv_sec;
    return told.tv_sec;
}
