/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A port that a socket was bound to and closed is the kernel's to give away, and a port that is
 * free at 127.0.0.1 may be in use at 127.0.0.2: a listener at all addresses finds either in use. So
 * the socket is bound at all addresses and stays open. Bound with SO_REUSEADDR and not listening,
 * it lets in listeners that set SO_REUSEADDR, too.
 */
#include "port.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

uint16_t port_keep(void)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY) };
    socklen_t len = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) ||
            bind(fd, (struct sockaddr *)&a, sizeof(a)) ||
            getsockname(fd, (struct sockaddr *)&a, &len)) {
        perror("no port is free");
        exit(1);
    }
    return ntohs(a.sin_port);
}
