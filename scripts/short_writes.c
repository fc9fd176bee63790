/* Preloaded into a program, lets every write to a file take half of its bytes, as the kernel may.
   check_faults.py compiles and uses it. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static size_t half(size_t length) { return length > 1 ? length / 2 : length; }

ssize_t write(int file, const void *bytes, size_t length) {
    return syscall(SYS_write, file, bytes, half(length));
}

ssize_t pwrite64(int file, const void *bytes, size_t length, off_t at) {
    return syscall(SYS_pwrite64, file, bytes, half(length), at);
}

ssize_t pwrite(int file, const void *bytes, size_t length, off_t at) { return pwrite64(file, bytes, length, at); }

ssize_t writev(int file, const struct iovec *parts, int count) {
    for (int at = 0; at < count; at++)
        if (parts[at].iov_len > 0)
            return write(file, parts[at].iov_base, parts[at].iov_len);
    return 0;
}
