/* A layer below a server's file calls, loaded with LD_PRELOAD: it keeps a journal of what was written and synced, and makes
 * calls fail. It sees what goes through the C library's functions for paths below one folder; not what is mapped (RocksDB maps
 * nothing for writing, and tables for reading only where told to), and not the C library's own streams (RocksDB's report LOG).
 *
 *   TORTURE_FOLDER    the folder, absolute
 *   TORTURE_JOURNAL   a file outside of it, to which records are appended (see struct record); optional
 *   TORTURE_CONTROL   a file of sizeof(struct control) bytes, shared with who started the server; optional
 *
 * The journal's readers are in crates/testkit/src/torture: `journal` makes of it the folder as a power cut would leave it.
 * All calls go straight to the kernel: nothing is allocated, and nothing of the C library is needed but errno and a lock. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* Kinds of calls; the names are those of crates/testkit/src/torture/control.rs. */
enum kind { OPEN, READ, WRITE, RESIZE, RENAME, UNLINK, LINK, MKDIR, SYNC, SYNC_FOLDER, KINDS };

/* Classes of files, a bit each. */
enum { LOG_FILE = 1, TABLE_FILE = 2, MANIFEST_FILE = 4, OTHER_FILE = 8 };

/* What fails, and how. Written by the one who started the server; what the layer counts is written by the layer. */
struct control {
    uint32_t armed;
    uint32_t kinds;    /* a bit for each kind */
    uint32_t classes;  /* a bit for each class of files */
    int32_t error;     /* errno; 0: the call goes on; -1: a write writes half */
    uint32_t delay_ms; /* before the call */
    uint32_t unused;
    uint64_t from;     /* the first call that fails, counted from 1 */
    uint64_t times;    /* how many fail */
    uint64_t seen;     /* calls that matched */
    uint64_t injected; /* calls that failed */
};

/* What happened; numbers are those of crates/testkit/src/torture/journal.rs. */
enum event { OPENED = 1, WRITTEN, TRUNCATED, RENAMED, UNLINKED, LINKED, MADE, SYNC_BEGAN, SYNC_ENDED, SYNC_FAILED, ZEROED };

struct record {
    uint32_t event;
    uint32_t bytes; /* of what follows: data, or paths with their closing zeros */
    uint64_t file;  /* a number for each time that a file was opened */
    uint64_t at;    /* where in the file; of an open its flags; of a sync its number */
    uint64_t length;
};

#define FDS 65536
static struct { uint64_t file; uint8_t known, ours, folder, class; } fds[FDS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static size_t root_length;
static int journal = -1;
static struct control *control;
static uint64_t opened, syncs;

__attribute__((constructor)) static void begin(void) {
    const char *folder = getenv("TORTURE_FOLDER"), *path;
    if (!folder || strlen(folder) >= sizeof root) return;
    strcpy(root, folder);
    if ((path = getenv("TORTURE_JOURNAL"))) {
        int fd = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        /* Out of the way of limits that a test sets. */
        journal = fcntl(fd, F_DUPFD_CLOEXEC, 900);
        if (journal < 0) journal = fd; else syscall(SYS_close, fd);
    }
    if ((path = getenv("TORTURE_CONTROL"))) {
        int fd = syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
        void *map = fd < 0 ? MAP_FAILED : mmap(0, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (map != MAP_FAILED) control = map;
        if (fd >= 0) syscall(SYS_close, fd);
    }
    root_length = strlen(root);
}

/* ---- names -------------------------------------------------------------------------------------------------------- */

static int fd_path(int fd, char *out) {
    char link[40] = "/proc/self/fd/", digits[12];
    int at = 14, n = 0;
    if (fd < 0) return 0;
    do digits[n++] = '0' + fd % 10; while (fd /= 10);
    while (n) link[at++] = digits[--n];
    link[at] = 0;
    long length = syscall(SYS_readlinkat, AT_FDCWD, link, out, PATH_MAX - 1);
    if (length <= 0) return 0;
    out[length] = 0;
    return 1;
}

/* The absolute path, if it lies below the folder (or is the folder). */
static int ours(int folder, const char *path, char *out) {
    if (!root_length || !path) return 0;
    if (path[0] == '/') {
        if (strlen(path) >= PATH_MAX) return 0;
        strcpy(out, path);
    } else {
        if (folder == AT_FDCWD) {
            if (syscall(SYS_getcwd, out, PATH_MAX) <= 0) return 0;
        } else if (!fd_path(folder, out)) return 0;
        if (strlen(out) + strlen(path) + 2 >= PATH_MAX) return 0;
        strcat(out, "/");
        strcat(out, path);
    }
    /* RocksDB joins names with one slash too many now and then. */
    char *to = out;
    for (char *from = out; *from; from++)
        if (from[0] != '/' || from[1] != '/') *to++ = *from;
    *to = 0;
    return !strncmp(out, root, root_length) && (out[root_length] == '/' || !out[root_length]);
}

static uint8_t class_of(const char *path) {
    const char *name = strrchr(path, '/'), *dot;
    name = name ? name + 1 : path;
    dot = strrchr(name, '.');
    if (dot && !strcmp(dot, ".log")) return LOG_FILE;
    if (dot && !strcmp(dot, ".sst")) return TABLE_FILE;
    if (!strncmp(name, "MANIFEST", 8) || !strcmp(name, "CURRENT") || (dot && !strcmp(dot, ".dbtmp"))) return MANIFEST_FILE;
    return OTHER_FILE;
}

/* RocksDB's report is written past this layer, and nobody relies on it. */
static int is_report(const char *path) {
    const char *name = strrchr(path, '/');
    return name && !strncmp(name + 1, "LOG", 3);
}

/* ---- the journal -------------------------------------------------------------------------------------------------- */

static void note(enum event event, uint64_t file, uint64_t at, uint64_t length, const struct iovec *data, int parts) {
    struct record head = {event, 0, file, at, length};
    struct iovec all[18] = {{&head, sizeof head}};
    if (journal < 0) return;
    for (int i = 0; i < parts && i < 17; i++) head.bytes += data[i].iov_len, all[i + 1] = data[i];
    syscall(SYS_writev, journal, all, parts + 1);
}

static void note_paths(enum event event, uint64_t file, uint64_t at, const char *one, const char *two) {
    struct iovec paths[2] = {{(void *)one, strlen(one) + 1}, {(void *)two, two ? strlen(two) + 1 : 0}};
    note(event, file, at, 0, paths, two ? 2 : 1);
}

/* ---- faults ------------------------------------------------------------------------------------------------------- */

/* 0: go on; -1: write half; else the errno that was set. */
static int fault(enum kind kind, uint8_t class) {
    struct control *c = control;
    if (!c || !__atomic_load_n(&c->armed, __ATOMIC_ACQUIRE) || !(c->kinds >> kind & 1) || !(c->classes & class)) return 0;
    uint64_t number = __atomic_add_fetch(&c->seen, 1, __ATOMIC_ACQ_REL);
    if (number < c->from || number - c->from >= c->times) return 0;
    __atomic_add_fetch(&c->injected, 1, __ATOMIC_ACQ_REL);
    if (c->delay_ms) {
        struct timespec pause = {c->delay_ms / 1000, c->delay_ms % 1000 * 1000000L};
        syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &pause, 0);
    }
    if (c->error > 0) errno = c->error;
    return c->error;
}

#define FAIL(kind, class) do { if (fault(kind, class) > 0) return -1; } while (0)

/* ---- files -------------------------------------------------------------------------------------------------------- */

/* Whether the descriptor is of a file of ours; one that was opened past this layer is looked up once. */
static int is_ours(int fd) {
    if (!root_length || fd < 0 || fd >= FDS) return 0;
    if (!fds[fd].known) {
        char path[PATH_MAX];
        int saved = errno;
        fds[fd].ours = fd_path(fd, path) && !strncmp(path, root, root_length) && path[root_length] == '/';
        fds[fd].class = OTHER_FILE;
        fds[fd].file = 0;
        fds[fd].known = 1;
        errno = saved;
    }
    return fds[fd].ours;
}

static int do_open(int folder, const char *path, int flags, mode_t mode) {
    char full[PATH_MAX];
    int mine = ours(folder, path, full);
    if (mine) FAIL(OPEN, class_of(full));
    pthread_mutex_lock(&lock);
    int fd = syscall(SYS_openat, folder, path, flags, mode), saved = errno;
    if (fd >= 0 && fd < FDS) {
        struct stat status;
        fds[fd].known = 1;
        fds[fd].ours = mine && !is_report(full);
        fds[fd].class = mine ? class_of(full) : 0;
        fds[fd].folder = mine && !fstat(fd, &status) && S_ISDIR(status.st_mode);
        fds[fd].file = ++opened;
        if (fds[fd].ours && (flags & __O_TMPFILE) && strlen(full) + sizeof "/unnamed" < sizeof full) {
            /* A file without a name in this folder: as one that is made and removed. */
            strcat(full, "/unnamed");
            note_paths(OPENED, fds[fd].file, O_CREAT, full, 0);
            note_paths(UNLINKED, 0, 0, full, 0);
        } else if (fds[fd].ours && (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC) || fds[fd].folder))
            note_paths(OPENED, fds[fd].file, flags & (O_CREAT | O_TRUNC), full, 0);
    }
    pthread_mutex_unlock(&lock);
    errno = saved;
    return fd;
}

static mode_t mode_of(int flags, va_list more) { return flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0; }

#define OPENS(name, ...)                                            \
    int name(const char *path, int flags, ...) {                    \
        va_list more;                                               \
        va_start(more, flags);                                      \
        mode_t mode = mode_of(flags, more);                         \
        va_end(more);                                               \
        return do_open(AT_FDCWD, path, flags, mode);                \
    }
#define OPENS_AT(name)                                              \
    int name(int folder, const char *path, int flags, ...) {        \
        va_list more;                                               \
        va_start(more, flags);                                      \
        mode_t mode = mode_of(flags, more);                         \
        va_end(more);                                               \
        return do_open(folder, path, flags, mode);                  \
    }
OPENS(open)
OPENS(open64)
OPENS_AT(openat)
OPENS_AT(openat64)
int creat(const char *path, mode_t mode) { return do_open(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return creat(path, mode); }
int __open_2(const char *path, int flags) { return do_open(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return do_open(AT_FDCWD, path, flags, 0); }
int __openat_2(int folder, const char *path, int flags) { return do_open(folder, path, flags, 0); }
int __openat64_2(int folder, const char *path, int flags) { return do_open(folder, path, flags, 0); }

int close(int fd) {
    if (fd >= 0 && fd < FDS) fds[fd].known = 0;
    return syscall(SYS_close, fd);
}

ssize_t read(int fd, void *to, size_t length) {
    if (is_ours(fd)) FAIL(READ, fds[fd].class);
    return syscall(SYS_read, fd, to, length);
}

ssize_t pread(int fd, void *to, size_t length, off_t at) {
    if (is_ours(fd)) FAIL(READ, fds[fd].class);
    return syscall(SYS_pread64, fd, to, length, at);
}
ssize_t pread64(int fd, void *to, size_t length, off_t at) { return pread(fd, to, length, at); }

/* Writes at a place, or at the end of what was written when there is none; notes as much as was written. */
static ssize_t write_parts(int fd, const struct iovec *parts, int count, off_t at) {
    if (!is_ours(fd))
        return at < 0 ? syscall(SYS_writev, fd, parts, count) : syscall(SYS_pwritev, fd, parts, count, at, 0L);
    struct iovec some[16];
    int wrong = fault(WRITE, fds[fd].class);
    if (wrong > 0) return -1;
    if (count > 16) count = 16;
    memcpy(some, parts, count * sizeof *some);
    if (wrong < 0 && count > 0 && some[0].iov_len > 1) count = 1, some[0].iov_len /= 2;
    pthread_mutex_lock(&lock);
    ssize_t written = at < 0 ? syscall(SYS_writev, fd, some, count) : syscall(SYS_pwritev, fd, some, count, at, 0L);
    int saved = errno;
    if (written > 0 && fds[fd].file) {
        size_t left = written;
        for (int i = 0; i < count; i++) {
            if (some[i].iov_len > left) some[i].iov_len = left;
            left -= some[i].iov_len;
        }
        uint64_t begin = at >= 0 ? (uint64_t)at : (uint64_t)syscall(SYS_lseek, fd, 0, SEEK_CUR) - written;
        note(WRITTEN, fds[fd].file, begin, written, some, count);
    }
    pthread_mutex_unlock(&lock);
    errno = saved;
    return written;
}

ssize_t write(int fd, const void *from, size_t length) {
    struct iovec part = {(void *)from, length};
    return is_ours(fd) ? write_parts(fd, &part, 1, -1) : syscall(SYS_write, fd, from, length);
}
ssize_t pwrite(int fd, const void *from, size_t length, off_t at) {
    struct iovec part = {(void *)from, length};
    return is_ours(fd) ? write_parts(fd, &part, 1, at) : syscall(SYS_pwrite64, fd, from, length, at);
}
ssize_t pwrite64(int fd, const void *from, size_t length, off_t at) { return pwrite(fd, from, length, at); }
ssize_t writev(int fd, const struct iovec *parts, int count) { return write_parts(fd, parts, count, -1); }
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) { return write_parts(fd, parts, count, at); }
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t at) { return write_parts(fd, parts, count, at); }

int ftruncate(int fd, off_t length) {
    if (!is_ours(fd)) return syscall(SYS_ftruncate, fd, length);
    FAIL(RESIZE, fds[fd].class);
    pthread_mutex_lock(&lock);
    int result = syscall(SYS_ftruncate, fd, length), saved = errno;
    if (!result) note(TRUNCATED, fds[fd].file, length, 0, 0, 0);
    pthread_mutex_unlock(&lock);
    errno = saved;
    return result;
}
int ftruncate64(int fd, off_t length) { return ftruncate(fd, length); }

int fallocate(int fd, int mode, off_t at, off_t length) {
    if (!is_ours(fd)) return syscall(SYS_fallocate, fd, mode, at, length);
    FAIL(RESIZE, fds[fd].class);
    pthread_mutex_lock(&lock);
    int result = syscall(SYS_fallocate, fd, mode, at, length), saved = errno;
    struct stat status;
    if (!result && mode & FALLOC_FL_PUNCH_HOLE) note(ZEROED, fds[fd].file, at, length, 0, 0);
    /* Bytes that are zero and count as written. */
    else if (!result && !(mode & FALLOC_FL_KEEP_SIZE) && !fstat(fd, &status)) note(TRUNCATED, fds[fd].file, status.st_size, 0, 0, 0);
    pthread_mutex_unlock(&lock);
    errno = saved;
    return result;
}
int fallocate64(int fd, int mode, off_t at, off_t length) { return fallocate(fd, mode, at, length); }
int posix_fallocate(int fd, off_t at, off_t length) { return fallocate(fd, 0, at, length) ? errno : 0; }
int posix_fallocate64(int fd, off_t at, off_t length) { return posix_fallocate(fd, at, length); }

static int do_sync(int fd, long call) {
    if (!is_ours(fd)) return syscall(call, fd);
    pthread_mutex_lock(&lock);
    uint64_t number = ++syncs, file = fds[fd].file;
    note(SYNC_BEGAN, file, number, 0, 0, 0);
    pthread_mutex_unlock(&lock);
    /* A real sync would cost time and proves nothing: the journal says what is on the disk. */
    int wrong = fault(fds[fd].folder ? SYNC_FOLDER : SYNC, fds[fd].class), saved = errno;
    int result = wrong > 0 ? -1 : journal >= 0 ? 0 : syscall(call, fd);
    if (wrong <= 0) saved = errno;
    pthread_mutex_lock(&lock);
    note(result ? SYNC_FAILED : SYNC_ENDED, file, number, 0, 0, 0);
    pthread_mutex_unlock(&lock);
    errno = saved;
    return result;
}
int fsync(int fd) { return do_sync(fd, SYS_fsync); }
int fdatasync(int fd) { return do_sync(fd, SYS_fdatasync); }
/* It promises nothing. */
int sync_file_range(int fd, off_t at, off_t length, unsigned flags) {
    return is_ours(fd) ? 0 : syscall(SYS_sync_file_range, fd, at, length, flags);
}

/* ---- folders ------------------------------------------------------------------------------------------------------ */

int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    char one[PATH_MAX], two[PATH_MAX];
    int mine = ours(from_folder, from, one) && ours(to_folder, to, two) && !is_report(one);
    if (mine) FAIL(RENAME, class_of(two));
    pthread_mutex_lock(&lock);
    int result = syscall(SYS_renameat2, from_folder, from, to_folder, to, 0), saved = errno;
    if (mine && !result) note_paths(RENAMED, 0, 0, one, two);
    pthread_mutex_unlock(&lock);
    errno = saved;
    return result;
}
int rename(const char *from, const char *to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }

int unlinkat(int folder, const char *path, int flags) {
    char full[PATH_MAX];
    int mine = ours(folder, path, full) && !is_report(full);
    if (mine) FAIL(UNLINK, class_of(full));
    pthread_mutex_lock(&lock);
    int result = syscall(SYS_unlinkat, folder, path, flags), saved = errno;
    if (mine && !result) note_paths(UNLINKED, 0, 0, full, 0);
    pthread_mutex_unlock(&lock);
    errno = saved;
    return result;
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    char one[PATH_MAX], two[PATH_MAX];
    int mine = ours(from_folder, from, one) && ours(to_folder, to, two);
    if (mine) FAIL(LINK, class_of(two));
    pthread_mutex_lock(&lock);
    int result = syscall(SYS_linkat, from_folder, from, to_folder, to, flags), saved = errno;
    if (mine && !result) note_paths(LINKED, 0, 0, one, two);
    pthread_mutex_unlock(&lock);
    errno = saved;
    return result;
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

int mkdirat(int folder, const char *path, mode_t mode) {
    char full[PATH_MAX];
    int mine = ours(folder, path, full);
    if (mine) FAIL(MKDIR, OTHER_FILE);
    pthread_mutex_lock(&lock);
    int result = syscall(SYS_mkdirat, folder, path, mode), saved = errno;
    if (mine && !result) note_paths(MADE, 0, 0, full, 0);
    pthread_mutex_unlock(&lock);
    errno = saved;
    return result;
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }
