/*
 * What a disk keeps when the power goes: a library for LD_PRELOAD.
 *
 * Writes go to the files as always. At each fsync and fdatasync the present content of the file is copied to a second
 * directory, POWER_KEPT; before it is, the call does not return. So that directory has, at any moment, the state in which
 * all writes that were not synced are dropped. The test kills the processes and puts that state in place.
 *
 *   files/KEY   the content of a file when it was last synced
 *   dirs/KEY    the entries of a directory when it was last synced, a line each: kind, mode, user, group, key, name
 *
 * A key is an inode with the time of its birth, since inodes are used again. Syncing a directory keeps its entries: without
 * it a renamed or removed file has its old name after the cut. Syncing a new file keeps its own entry too, as the file
 * systems of Linux do. POWER_IGNORES_SYNCS makes every sync return without effect, as a disk that lies does.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 4096, KEY = 64 };

static const char *root, *kept;
static size_t root_length;
static int ignores_syncs;

static void fail(const char *what)
{
    /* A state that is only half kept would blame the program under test. */
    fprintf(stderr, "power loss: %s: %s\n", what, strerror(errno));
    _exit(99);
}

/* A copy: PostgreSQL writes its title over its environment. */
static const char *copy_of(const char *variable)
{
    const char *value = getenv(variable);
    return value ? strdup(value) : NULL;
}

__attribute__((constructor)) static void begin(void)
{
    root = copy_of("POWER_ROOT");
    kept = copy_of("POWER_KEPT");
    root_length = root ? strlen(root) : 0;
    ignores_syncs = getenv("POWER_IGNORES_SYNCS") != NULL;
}

static int key_of(int at, const char *path, int flags, struct statx *info, char *key)
{
    if (statx(at, path, flags | AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME, info))
        return -1;
    snprintf(key, KEY, "%llu-%lld.%09u", (unsigned long long)info->stx_ino, (long long)info->stx_btime.tv_sec,
             info->stx_btime.tv_nsec);
    return 0;
}

static void path_in(char *to, const char *kind, const char *key)
{
    snprintf(to, PATH_MAX, "%s/%s/%s", kept, kind, key);
}

static int write_line(FILE *to, const struct statx *info, const char *key, const char *name)
{
    char kind = S_ISDIR(info->stx_mode) ? 'd' : S_ISLNK(info->stx_mode) ? 'l' : 'f';
    return fprintf(to, "%c %o %u %u %s %s\n", kind, info->stx_mode & 07777, info->stx_uid, info->stx_gid, key, name);
}

/* Adds the entry of PATH to what is kept of its directory, and that of the directory to its own, up to the root. */
static void keep_entry(const char *path)
{
    char parent[PATH_MAX], key[KEY], directory[KEY], list[PATH_MAX], line[PATH_MAX];
    struct statx info, above;
    if (strlen(path) <= root_length || key_of(AT_FDCWD, path, 0, &info, key))
        return;
    snprintf(parent, sizeof parent, "%s", path);
    *strrchr(parent, '/') = 0;
    const char *name = path + strlen(parent) + 1;
    if (key_of(AT_FDCWD, parent, 0, &above, directory))
        fail(parent);
    path_in(list, "dirs", directory);
    FILE *entries = fopen(list, "a+");
    if (!entries)
        fail(list);
    int is_known = 0;
    rewind(entries);
    while (fgets(line, sizeof line, entries)) {
        char known_key[KEY];
        int at = 0;
        if (sscanf(line, "%*c %*o %*u %*u %63s %n", known_key, &at) < 1)
            continue;
        line[strcspn(line, "\n")] = 0;
        /* Kept under another name, or the name is that of another file: a rename needs the sync of its directory. */
        is_known |= strcmp(known_key, key) == 0 || strcmp(line + at, name) == 0;
    }
    if (!is_known && write_line(entries, &info, key, name) < 0)
        fail(list);
    if (fclose(entries))
        fail(list);
    keep_entry(parent);
}

static void keep_file(int file, const char *key)
{
    static __thread char present[BLOCK], before[BLOCK];
    char path[PATH_MAX], own[64];
    path_in(path, "files", key);
    /* The program's own descriptor may not be open for reading. */
    snprintf(own, sizeof own, "/proc/self/fd/%d", file);
    int from = open(own, O_RDONLY | O_CLOEXEC);
    int to = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (from < 0 || to < 0)
        fail(path);
    off_t at = 0;
    for (;;) {
        ssize_t count = pread(from, present, BLOCK, at);
        if (count < 0)
            fail(path);
        if (count == 0)
            break;
        if (pread(to, before, count, at) != count || memcmp(present, before, count)) {
            if (pwrite(to, present, count, at) != count)
                fail(path);
        }
        at += count;
    }
    if (ftruncate(to, at))
        fail(path);
    close(from);
    close(to);
}

static void keep_directory(const char *path, const char *key)
{
    char list[PATH_MAX], fresh[PATH_MAX];
    path_in(list, "dirs", key);
    snprintf(fresh, sizeof fresh, "%s/dirs/fresh", kept);
    FILE *to = fopen(fresh, "w");
    DIR *directory = opendir(path);
    if (!to || !directory)
        fail(path);
    for (struct dirent *entry; (entry = readdir(directory));) {
        struct statx info;
        char entry_key[KEY];
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        /* Gone since it was listed. */
        if (key_of(dirfd(directory), entry->d_name, 0, &info, entry_key))
            continue;
        if (write_line(to, &info, entry_key, entry->d_name) < 0)
            fail(list);
    }
    closedir(directory);
    if (fclose(to) || rename(fresh, list))
        fail(list);
    keep_entry(path);
}

static int keep(int file)
{
    char link[64], path[PATH_MAX], lock_path[PATH_MAX], key[KEY];
    struct statx info;
    if (!root || !kept || ignores_syncs)
        return 0;
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return -1;
    path[length] = 0;
    if (strncmp(path, root, root_length) || (path[root_length] && path[root_length] != '/'))
        return 0;
    if (key_of(file, "", AT_EMPTY_PATH, &info, key))
        fail(path);
    /* One sync at a time, of all threads and processes: an older content must not replace a later one. */
    snprintf(lock_path, sizeof lock_path, "%s/lock", kept);
    int lock = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock < 0)
        fail(lock_path);
    while (flock(lock, LOCK_EX))
        if (errno != EINTR)
            fail(lock_path);
    if (S_ISDIR(info.stx_mode)) {
        keep_directory(path, key);
    } else {
        keep_file(file, key);
        keep_entry(path);
    }
    close(lock);
    errno = before;
    return 0;
}

int fsync(int file)
{
    return keep(file);
}

int fdatasync(int file)
{
    return keep(file);
}
