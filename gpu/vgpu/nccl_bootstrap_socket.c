/* Messages with a file descriptor over a local socket. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gpu/vgpu/nccl_bootstrap.h"

socklen_t nccl_address(const unsigned char *name, struct sockaddr_un *address) {
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    int length = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "lockstep-nccl-");
    for (size_t i = 0; i < NCCL_NAME_BYTES; i++) {
        length += snprintf(address->sun_path + 1 + length, sizeof address->sun_path - 1 - (size_t)length, "%02x",
                           (unsigned)name[i]);
    }
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

typedef union descriptor_buffer {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
} descriptor_buffer;

int nccl_send(int socket, const void *message, size_t bytes, int fd) {
    struct iovec part = {.iov_base = (void *)(uintptr_t)message, .iov_len = bytes};
    descriptor_buffer buffer;
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        memset(&buffer, 0, sizeof buffer);
        header.msg_control = buffer.bytes;
        header.msg_controllen = sizeof buffer.bytes;
        struct cmsghdr *attached = CMSG_FIRSTHDR(&header);
        attached->cmsg_level = SOL_SOCKET;
        attached->cmsg_type = SCM_RIGHTS;
        attached->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(attached), &fd, sizeof fd);
    }
    ssize_t sent;
    do {
        sent = sendmsg(socket, &header, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)bytes ? 0 : -1;
}

ssize_t nccl_receive(int socket, void *message, size_t bytes, int *fd) {
    struct iovec part = {.iov_base = message, .iov_len = bytes};
    descriptor_buffer buffer;
    memset(&buffer, 0, sizeof buffer);
    struct msghdr header = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = buffer.bytes, .msg_controllen = sizeof buffer.bytes};
    *fd = -1;
    ssize_t got;
    do {
        got = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
        return errno == ECONNRESET ? 0 : got;
    }
    struct cmsghdr *attached = CMSG_FIRSTHDR(&header);
    if (attached != NULL && attached->cmsg_level == SOL_SOCKET && attached->cmsg_type == SCM_RIGHTS) {
        memcpy(fd, CMSG_DATA(attached), sizeof *fd);
    }
    return got;
}

bool nccl_same_user(int socket) {
    struct ucred who;
    socklen_t size = sizeof who;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.uid == geteuid();
}
