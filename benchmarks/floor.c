/* The C floor: what a request costs through libfuse alone, in one thread, when the handler does nothing.

       floor MOUNTPOINT [CONTENT]

   As floor.py, in C: every name in the root is a directory, every name in that is the one file.
   Reads return bytes of CONTENT, which is mapped; writes are counted as written and forgotten. */

#define FUSE_USE_VERSION 312

#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DIRECTORY_INODE = 2, FILE_INODE = 3 };

#define BLOCK_BYTES (1 << 20)
#define NAMES_S 1.0

static const char *content = "";
static size_t content_bytes;

static struct stat attributes(fuse_ino_t inode) {
    struct stat found = {.st_ino = inode, .st_nlink = 1, .st_blksize = BLOCK_BYTES};

    found.st_uid = getuid();
    found.st_gid = getgid();
    found.st_mode = inode == FILE_INODE ? S_IFREG | 0644 : S_IFDIR | 0755;
    found.st_size = inode == FILE_INODE ? (off_t)content_bytes : 0;
    found.st_blocks = (found.st_size + 511) / 512;
    return found;
}

static void look_up(fuse_req_t request, fuse_ino_t parent, const char *name) {
    struct fuse_entry_param entry = {.entry_timeout = NAMES_S};

    (void)name;
    entry.ino = parent == FUSE_ROOT_ID ? DIRECTORY_INODE : FILE_INODE;
    entry.attr = attributes(entry.ino);
    entry.attr_timeout = entry.ino == FILE_INODE ? 0 : NAMES_S;
    fuse_reply_entry(request, &entry);
}

static void get_attributes(fuse_req_t request, fuse_ino_t inode, struct fuse_file_info *info) {
    struct stat found = attributes(inode);

    (void)info;
    fuse_reply_attr(request, &found, inode == FILE_INODE ? 0 : NAMES_S);
}

static void open_file(fuse_req_t request, fuse_ino_t inode, struct fuse_file_info *info) {
    (void)inode;
    info->fh = 1;
    info->direct_io = 1;
    info->keep_cache = 1;
    fuse_reply_open(request, info);
}

static void read_file(fuse_req_t request, fuse_ino_t inode, size_t size, off_t offset,
                      struct fuse_file_info *info) {
    size_t begin = (size_t)offset < content_bytes ? (size_t)offset : content_bytes;

    (void)inode, (void)info;
    fuse_reply_buf(request, content + begin,
                   size < content_bytes - begin ? size : content_bytes - begin);
}

static void write_file(fuse_req_t request, fuse_ino_t inode, const char *bytes, size_t size,
                       off_t offset, struct fuse_file_info *info) {
    (void)inode, (void)bytes, (void)offset, (void)info;
    fuse_reply_write(request, size);
}

static void flush_file(fuse_req_t request, fuse_ino_t inode, struct fuse_file_info *info) {
    (void)inode, (void)info;
    fuse_reply_err(request, 0);
}

static void sync_file(fuse_req_t request, fuse_ino_t inode, int is_data, struct fuse_file_info *info) {
    (void)inode, (void)is_data, (void)info;
    fuse_reply_err(request, 0);
}

static void get_attribute(fuse_req_t request, fuse_ino_t inode, const char *name, size_t size) {
    (void)inode, (void)name, (void)size;
    fuse_reply_err(request, ENODATA);
}

static const struct fuse_lowlevel_ops operations = {
    .lookup = look_up,
    .getattr = get_attributes,
    .open = open_file,
    .read = read_file,
    .write = write_file,
    .flush = flush_file,
    .release = flush_file,
    .fsync = sync_file,
    .getxattr = get_attribute,
};

int main(int count, char **arguments) {
    char *options[] = {arguments[0], "-ofsname=floor,default_permissions"};
    struct fuse_args given = FUSE_ARGS_INIT(2, options);
    struct fuse_session *session;
    struct stat file;
    int status = 1, fd;

    if (count < 2) {
        fprintf(stderr, "usage: %s MOUNTPOINT [CONTENT]\n", arguments[0]);
        return 2;
    }
    if (count > 2) {
        fd = open(arguments[2], O_RDONLY);
        if (fd < 0 || fstat(fd, &file) != 0) {
            perror(arguments[2]);
            return 1;
        }
        content_bytes = (size_t)file.st_size;
        content = mmap(NULL, content_bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
        if (content == MAP_FAILED) {
            perror(arguments[2]);
            return 1;
        }
    }
    session = fuse_session_new(&given, &operations, sizeof operations, NULL);
    if (session != NULL && fuse_set_signal_handlers(session) == 0 &&
        fuse_session_mount(session, arguments[1]) == 0) {
        status = fuse_session_loop(session) < 0;
        fuse_session_unmount(session);
    }
    if (session != NULL)
        fuse_session_destroy(session);
    return status;
}
