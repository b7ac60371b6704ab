/* A disk that loses what was not synced, and one that is full: preloaded (LD_PRELOAD) into the processes under test.
 *
 * Only paths below SOAK_DISK_PREFIXES (separated by colons) are touched. Two abilities:
 *
 *  - Journal. Every write, sync and change of a folder's entries is a line in SOAK_DISK_JOURNAL, a file outside of the
 *    prefixes, so that `faulty_disk.py` can say afterwards what a loss of power may take back. A file that loses its
 *    name is kept by a hard link in SOAK_DISK_SHADOWS. Each line is written within the call: a sync after it succeeded, a
 *    write before it happens. So what a program has written and then synced is never called unsynced.
 *  - Full. While the file SOAK_DISK_FULL exists, what would make a file longer, or a new one, fails with ENOSPC;
 *    sometimes after a part of the bytes. Every refusal is a line in SOAK_DISK_REFUSED, so that one knows that it was.
 *
 * Every line is one write of O_APPEND on a descriptor of its own: processes close descriptors that they do not know.
 * Paths are compared as text; the harness passes prefixes without symbolic links. Writes through mmap and through the
 * buffers of stdio (fwrite) are not seen.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MAX_PREFIXES 16
#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static char *prefixes[MAX_PREFIXES];
static size_t lengths[MAX_PREFIXES];
static int prefix_count, ready;
static const char *journal, *shadows, *full, *refused;
static unsigned shadow_count;

__attribute__((constructor)) static void start(void) {
    if (ready) return;
    const char *text = getenv("SOAK_DISK_PREFIXES");
    journal = getenv("SOAK_DISK_JOURNAL");
    shadows = getenv("SOAK_DISK_SHADOWS");
    full = getenv("SOAK_DISK_FULL");
    refused = getenv("SOAK_DISK_REFUSED");
    if (text) {
        char *copy = strdup(text), *rest = copy, *part;
        while ((part = strsep(&rest, ":")) && prefix_count < MAX_PREFIXES)
            if (*part) {
                prefixes[prefix_count] = part;
                lengths[prefix_count++] = strlen(part);
            }
    }
    if (journal) journal = strdup(journal);
    if (shadows) shadows = strdup(shadows);
    if (full) full = strdup(full);
    if (refused) refused = strdup(refused);
    ready = 1;
}

/* Paths */

static int below(const char *path) {
    start();
    for (int i = 0; i < prefix_count; i++)
        if (!strncmp(path, prefixes[i], lengths[i]) && (path[lengths[i]] == '/' || !path[lengths[i]])) return 1;
    return 0;
}

static int link_of(int fd, char *out) {
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t size = syscall(SYS_readlinkat, AT_FDCWD, name, out, PATH_MAX - 1);
    if (size <= 0) return 0;
    out[size] = 0;
    return out[0] == '/';
}

/* The absolute path without `.`, `..` and doubled slashes; 0 if it is not below a prefix. */
static int ours(int dir, const char *path, char *out) {
    char text[2 * PATH_MAX];
    start();
    if (!prefix_count || !path || !*path) return 0;
    if (*path == '/') {
        snprintf(text, sizeof text, "%s", path);
    } else {
        char base[PATH_MAX];
        if (dir == AT_FDCWD) {
            if (syscall(SYS_getcwd, base, sizeof base) <= 0) return 0;
        } else if (!link_of(dir, base)) {
            return 0;
        }
        snprintf(text, sizeof text, "%s/%s", base, path);
    }
    size_t end = 0;
    char *rest = text, *part;
    while ((part = strsep(&rest, "/"))) {
        if (!*part || !strcmp(part, ".")) continue;
        if (!strcmp(part, "..")) {
            while (end && out[--end] != '/') {}
            continue;
        }
        size_t size = strlen(part);
        if (end + size + 2 > PATH_MAX) return 0;
        out[end++] = '/';
        memcpy(out + end, part, size);
        end += size;
    }
    out[end] = 0;
    return below(out);
}

/* What a descriptor is: known by its number and inode, so that a number that was used again is noticed. */

enum { UNKNOWN, OTHER, OURS };
#define MAX_FD 65536
static unsigned char kinds[MAX_FD];
static ino_t inodes[MAX_FD];

static int is_ours(int fd, struct stat *st) {
    if (!ready) start();
    if (!prefix_count || fd < 0) return 0;
    if (fd < MAX_FD && kinds[fd] == OTHER) return 0;
    int saved = errno;
    if (fstat(fd, st) || !(S_ISREG(st->st_mode) || S_ISDIR(st->st_mode))) {
        errno = saved;
        return 0;
    }
    if (fd < MAX_FD && kinds[fd] == OURS && inodes[fd] == st->st_ino) return 1;
    char path[PATH_MAX];
    int found = link_of(fd, path) && below(path);
    if (fd < MAX_FD) {
        kinds[fd] = found ? OURS : OTHER;
        inodes[fd] = st->st_ino;
    }
    errno = saved;
    return found;
}

static void forget(int fd) {
    if (fd >= 0 && fd < MAX_FD) kinds[fd] = UNKNOWN;
}

/* The journal */

static void append(const char *file, const char *line, size_t size) {
    int fd = (int)syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0) return;
    (void)!syscall(SYS_write, fd, line, size);
    syscall(SYS_close, fd);
}

static void note(const char *format, ...) {
    if (!journal) return;
    int saved = errno;
    char line[3 * PATH_MAX];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int size = snprintf(line, sizeof line, "%lld\t", (long long)now.tv_sec * 1000000000LL + now.tv_nsec);
    va_list arguments;
    va_start(arguments, format);
    size += vsnprintf(line + size, sizeof line - size - 1, format, arguments);
    va_end(arguments);
    line[size++] = '\n';
    append(journal, line, (size_t)size);
    errno = saved;
}

/* A hard link to a file that is about to lose this name; its name is `-` where there is none. */
static void keep(const char *path, char *name, ino_t *inode) {
    struct stat st;
    int saved = errno;
    strcpy(name, "-");
    *inode = 0;
    if (!lstat(path, &st)) {
        *inode = st.st_ino;
        if (S_ISDIR(st.st_mode)) strcpy(name, "folder");
        if (S_ISREG(st.st_mode) && shadows) {
            char target[PATH_MAX];
            unsigned number = __atomic_add_fetch(&shadow_count, 1, __ATOMIC_RELAXED);
            struct timespec now;
            clock_gettime(CLOCK_REALTIME, &now);
            snprintf(name, 96, "%d-%u-%lld%09ld", getpid(), number, (long long)now.tv_sec, now.tv_nsec);
            snprintf(target, sizeof target, "%s/%s", shadows, name);
            if (syscall(SYS_linkat, AT_FDCWD, path, AT_FDCWD, target, 0)) strcpy(name, "lost");
        }
    }
    errno = saved;
}

/* The full disk */

static int is_full(void) {
    if (!full) return 0;
    int saved = errno;
    int found = !syscall(SYS_faccessat, AT_FDCWD, full, F_OK);
    errno = saved;
    return found;
}

static int no_space(void) {
    if (refused) append(refused, "x\n", 2);
    errno = ENOSPC;
    return -1;
}

/* How many of the bytes still fit; -1: none. Bytes that are there already may be written again. */
static ssize_t fits(const struct stat *st, off_t at, size_t size) {
    if (at + (off_t)size <= st->st_size || !size || !is_full()) return (ssize_t)size;
    static unsigned turn;
    unsigned now = __atomic_add_fetch(&turn, 1, __ATOMIC_RELAXED) * 2654435761u + (unsigned)getpid() * 40503u;
    if (size > 1 && (now >> 16) % 3 == 0) return 1 + (ssize_t)((now >> 8) % (size - 1));
    return -1;
}

static off_t position(int fd, const struct stat *st) {
    int flags = fcntl(fd, F_GETFL);
    return flags & O_APPEND ? st->st_size : lseek(fd, 0, SEEK_CUR);
}

static void written(const struct stat *st, off_t at, size_t size) {
    note("W\t%llu\t%lld\t%zu", (unsigned long long)st->st_ino, (long long)at, size);
}

/* Opening */

static int opened(int fd, const char *path, int flags, int created, ino_t before) {
    struct stat st;
    if (fd < 0) return fd;
    forget(fd);
    if (fstat(fd, &st)) return fd;
    if (fd < MAX_FD) {
        inodes[fd] = st.st_ino;
        kinds[fd] = OURS;
    }
    if (created) note("C\t%s\t%llu", path, (unsigned long long)st.st_ino);
    else if ((flags & O_TRUNC) && (flags & O_ACCMODE) != O_RDONLY && before)
        note("T\t%llu\t0", (unsigned long long)st.st_ino);
    return fd;
}

static int open_at(int dir, const char *name, int flags, mode_t mode) {
    char path[PATH_MAX];
    int tmpfile = (flags & O_TMPFILE) == O_TMPFILE;
    if (tmpfile || !ours(dir, name, path)) {
        int fd = (int)syscall(SYS_openat, dir, name, flags, mode);
        forget(fd);
        return fd;
    }
    struct stat st;
    int there = !lstat(path, &st);
    if (!there && (flags & O_CREAT) && is_full()) return no_space();
    int fd = (int)syscall(SYS_openat, dir, name, flags, mode);
    return opened(fd, path, flags, !there && (flags & O_CREAT), there ? st.st_ino : 0);
}

#define MODE \
    mode_t mode = 0; \
    if (flags & (O_CREAT | __O_TMPFILE)) { \
        va_list arguments; \
        va_start(arguments, flags); \
        mode = va_arg(arguments, mode_t); \
        va_end(arguments); \
    }

int open(const char *path, int flags, ...) { MODE return open_at(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE return open_at(AT_FDCWD, path, flags | O_LARGEFILE, mode); }
int openat(int dir, const char *path, int flags, ...) { MODE return open_at(dir, path, flags, mode); }
int openat64(int dir, const char *path, int flags, ...) { MODE return open_at(dir, path, flags | O_LARGEFILE, mode); }
int creat(const char *path, mode_t mode) { return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return creat(path, mode); }
int __open_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags | O_LARGEFILE, 0); }
int __openat_2(int dir, const char *path, int flags) { return open_at(dir, path, flags, 0); }
int __openat64_2(int dir, const char *path, int flags) { return open_at(dir, path, flags | O_LARGEFILE, 0); }

int close(int fd) {
    forget(fd);
    REAL(close);
    return real(fd);
}

int dup2(int from, int to) {
    forget(to);
    REAL(dup2);
    return real(from, to);
}

int dup3(int from, int to, int flags) {
    forget(to);
    REAL(dup3);
    return real(from, to, flags);
}

/* Writing */

#define WRITING(at) \
    struct stat st; \
    if (is_ours(fd, &st)) { \
        off_t where = (at); \
        ssize_t room = fits(&st, where, size); \
        if (room < 0) return no_space(); \
        size = (size_t)room; \
        written(&st, where, size); \
    }

ssize_t write(int fd, const void *data, size_t size) {
    WRITING(position(fd, &st))
    REAL(write);
    return real(fd, data, size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    WRITING(at)
    REAL(pwrite);
    return real(fd, data, size, at);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    WRITING(at)
    REAL(pwrite64);
    return real(fd, data, size, at);
}

static size_t total(const struct iovec *parts, int count) {
    size_t sum = 0;
    for (int i = 0; i < count; i++) sum += parts[i].iov_len;
    return sum;
}

/* On a full disk a gathered write takes all or nothing. */
#define GATHERING(at) \
    struct stat st; \
    if (is_ours(fd, &st)) { \
        off_t where = (at); \
        size_t size = total(parts, count); \
        if (fits(&st, where, size) != (ssize_t)size) return no_space(); \
        written(&st, where, size); \
    }

ssize_t writev(int fd, const struct iovec *parts, int count) {
    GATHERING(position(fd, &st))
    REAL(writev);
    return real(fd, parts, count);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    GATHERING(at)
    REAL(pwritev);
    return real(fd, parts, count, at);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) {
    GATHERING(at)
    REAL(pwritev64);
    return real(fd, parts, count, at);
}

ssize_t sendfile(int fd, int from, off_t *offset, size_t size) {
    WRITING(position(fd, &st))
    REAL(sendfile);
    return real(fd, from, offset, size);
}

ssize_t sendfile64(int fd, int from, off64_t *offset, size_t size) {
    WRITING(position(fd, &st))
    REAL(sendfile64);
    return real(fd, from, offset, size);
}

ssize_t copy_file_range(int from, off64_t *in, int fd, off64_t *out, size_t size, unsigned flags) {
    WRITING(out ? *out : position(fd, &st))
    REAL(copy_file_range);
    return real(from, in, fd, out, size, flags);
}

static int resized(int fd, off_t length) {
    struct stat st;
    if (!is_ours(fd, &st)) return 0;
    if (length > st.st_size && is_full()) return no_space();
    note("T\t%llu\t%lld", (unsigned long long)st.st_ino, (long long)length);
    return 0;
}

int ftruncate(int fd, off_t length) {
    if (resized(fd, length)) return -1;
    REAL(ftruncate);
    return real(fd, length);
}

int ftruncate64(int fd, off64_t length) {
    if (resized(fd, length)) return -1;
    REAL(ftruncate64);
    return real(fd, length);
}

static int extended(int fd, off_t end) {
    struct stat st;
    if (!is_ours(fd, &st)) return 0;
    if (end > st.st_size && is_full()) return no_space();
    written(&st, st.st_size, 0);
    return 0;
}

int fallocate(int fd, int mode, off_t at, off_t size) {
    if (extended(fd, at + size)) return -1;
    REAL(fallocate);
    return real(fd, mode, at, size);
}

int fallocate64(int fd, int mode, off64_t at, off64_t size) {
    if (extended(fd, at + size)) return -1;
    REAL(fallocate64);
    return real(fd, mode, at, size);
}

int posix_fallocate(int fd, off_t at, off_t size) {
    if (extended(fd, at + size)) return ENOSPC;
    REAL(posix_fallocate);
    return real(fd, at, size);
}

int posix_fallocate64(int fd, off64_t at, off64_t size) {
    if (extended(fd, at + size)) return ENOSPC;
    REAL(posix_fallocate64);
    return real(fd, at, size);
}

/* Syncing: what was there when it began */

static void synced(int fd, const struct stat *st) {
    char path[PATH_MAX];
    if (S_ISDIR(st->st_mode)) {
        if (link_of(fd, path)) note("D\t%s", path);
    } else {
        note("S\t%llu\t%lld", (unsigned long long)st->st_ino, (long long)st->st_size);
    }
}

#define SYNCING(name) \
    int name(int fd) { \
        struct stat st; \
        int mine = is_ours(fd, &st); \
        REAL(name); \
        int result = real(fd); \
        if (!result && mine) synced(fd, &st); \
        return result; \
    }

SYNCING(fsync)
SYNCING(fdatasync)

int syncfs(int fd) {
    REAL(syncfs);
    int result = real(fd);
    if (!result) note("A");
    return result;
}

void sync(void) {
    REAL(sync);
    real();
    note("A");
}

/* Entries of folders */

static int rename_at(int old_dir, const char *old, int new_dir, const char *new, unsigned flags) {
    char from[PATH_MAX], to[PATH_MAX], name[128];
    int from_ours = ours(old_dir, old, from), to_ours = ours(new_dir, new, to);
    if (!from_ours && !to_ours) return (int)syscall(SYS_renameat2, old_dir, old, new_dir, new, flags);
    struct stat st;
    ino_t replaced = 0, inode = lstat(from, &st) ? 0 : st.st_ino;
    strcpy(name, "-");
    if (!(flags & (RENAME_NOREPLACE | RENAME_EXCHANGE))) keep(to, name, &replaced);
    if (replaced == inode) strcpy(name, replaced ? "lost" : "-");
    int result = (int)syscall(SYS_renameat2, old_dir, old, new_dir, new, flags);
    if (!result && !(flags & RENAME_EXCHANGE))
        note("R\t%s\t%s\t%llu\t%s", from, to, (unsigned long long)inode, name);
    return result;
}

int rename(const char *old, const char *new) { return rename_at(AT_FDCWD, old, AT_FDCWD, new, 0); }
int renameat(int old_dir, const char *old, int new_dir, const char *new) {
    return rename_at(old_dir, old, new_dir, new, 0);
}
int renameat2(int old_dir, const char *old, int new_dir, const char *new, unsigned flags) {
    return rename_at(old_dir, old, new_dir, new, flags);
}

int linkat(int old_dir, const char *old, int new_dir, const char *new, int flags) {
    char path[PATH_MAX];
    struct stat st;
    int mine = ours(new_dir, new, path);
    if (mine && is_full()) return no_space();
    int result = (int)syscall(SYS_linkat, old_dir, old, new_dir, new, flags);
    if (!result && mine && !lstat(path, &st)) note("L\t%s\t%llu", path, (unsigned long long)st.st_ino);
    return result;
}

int link(const char *old, const char *new) { return linkat(AT_FDCWD, old, AT_FDCWD, new, 0); }

int unlinkat(int dir, const char *name, int flags) {
    char path[PATH_MAX], shadow[128];
    ino_t inode;
    int mine = ours(dir, name, path);
    if (mine && !(flags & AT_REMOVEDIR)) keep(path, shadow, &inode);
    int result = (int)syscall(SYS_unlinkat, dir, name, flags);
    if (!result && mine) {
        if (flags & AT_REMOVEDIR) note("X\t%s", path);
        else note("U\t%s\t%llu\t%s", path, (unsigned long long)inode, shadow);
    }
    return result;
}

int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int remove(const char *path) {
    if (!unlink(path)) return 0;
    return errno == EISDIR || errno == EPERM ? rmdir(path) : -1;
}

int mkdirat(int dir, const char *name, mode_t mode) {
    char path[PATH_MAX];
    int mine = ours(dir, name, path);
    struct stat st;
    if (mine && is_full() && lstat(path, &st)) return no_space();
    int result = (int)syscall(SYS_mkdirat, dir, name, mode);
    if (!result && mine) note("K\t%s", path);
    return result;
}

int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }
