/* faultdisk POINT IMAGE MODE: mounts a file system with one file, "disk", for a loop device. Its bytes are
   those of IMAGE. Writes that contain a mark fail as the first byte of the file MODE says:
   '0' none do; 'E' with EIO, as on a bad medium; 'S' with ENOSPC, as on a thin volume without room.
   "R START END" in that file: reads of these bytes fail with EIO. */

#define FUSE_USE_VERSION 31
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char NAME[] = "/disk";
static const char MARK[] = "failed line ";
static int image, mode;

/* The error of writes that have the mark; 0: there is none. */
static int fault(void) {
    char byte = '0';

    if (pread(mode, &byte, 1, 0) != 1)
        return 0;
    return byte == 'E' ? EIO : byte == 'S' ? ENOSPC : 0;
}

/* Whether reads of some bytes fail. */
static int is_unreadable(off_t offset, size_t size) {
    char text[64] = {0};
    long long start, end;

    if (pread(mode, text, sizeof text - 1, 0) <= 0 || sscanf(text, "R %lld %lld", &start, &end) != 2)
        return 0;
    return offset < end && offset + (off_t)size > start;
}

static int disk_getattr(const char *path, struct stat *found, struct fuse_file_info *file) {
    (void)file;
    memset(found, 0, sizeof *found);
    if (strcmp(path, "/") == 0) {
        found->st_mode = S_IFDIR | 0755;
        found->st_nlink = 2;
        return 0;
    }
    if (strcmp(path, NAME) != 0)
        return -ENOENT;
    if (fstat(image, found) != 0)
        return -errno;
    found->st_mode = S_IFREG | 0600;
    return 0;
}

static int disk_readdir(const char *path, void *list, fuse_fill_dir_t fill, off_t offset,
                        struct fuse_file_info *file, enum fuse_readdir_flags flags) {
    (void)path, (void)offset, (void)file, (void)flags;
    fill(list, NAME + 1, NULL, 0, 0);
    return 0;
}

static int disk_open(const char *path, struct fuse_file_info *file) {
    (void)file;
    return strcmp(path, NAME) == 0 ? 0 : -ENOENT;
}

static int disk_read(const char *path, char *data, size_t size, off_t offset,
                     struct fuse_file_info *file) {
    (void)path, (void)file;
    ssize_t done;

    if (is_unreadable(offset, size))
        return -EIO;
    done = pread(image, data, size, offset);
    return done < 0 ? -errno : (int)done;
}

static int disk_write(const char *path, const char *data, size_t size, off_t offset,
                      struct fuse_file_info *file) {
    (void)path, (void)file;
    int error = fault();
    ssize_t done;

    if (error != 0 && memmem(data, size, MARK, sizeof MARK - 1) != NULL)
        return -error;
    done = pwrite(image, data, size, offset);
    return done < 0 ? -errno : (int)done;
}

static int disk_fsync(const char *path, int is_datasync, struct fuse_file_info *file) {
    (void)path, (void)is_datasync, (void)file;
    return 0; /* the machine does not stop, only the file system on the disk */
}

static int disk_fallocate(const char *path, int flags, off_t offset, off_t length,
                          struct fuse_file_info *file) {
    (void)path, (void)file;
    return fallocate(image, flags, offset, length) == 0 ? 0 : -errno;
}

static const struct fuse_operations OPERATIONS = {
    .getattr = disk_getattr,
    .readdir = disk_readdir,
    .open = disk_open,
    .read = disk_read,
    .write = disk_write,
    .fsync = disk_fsync,
    .fallocate = disk_fallocate,
};

int main(int count, char **arguments) {
    char foreground[] = "-f";
    char *mount[] = {arguments[0], foreground, count == 4 ? arguments[1] : NULL, NULL};

    if (count != 4) {
        fprintf(stderr, "usage: faultdisk POINT IMAGE MODE\n");
        return 2;
    }
    image = open(arguments[2], O_RDWR | O_CLOEXEC);
    mode = open(arguments[3], O_RDONLY | O_CLOEXEC);
    if (image < 0 || mode < 0) {
        perror("faultdisk");
        return 1;
    }
    return fuse_main(3, mount, &OPERATIONS, NULL);
}
