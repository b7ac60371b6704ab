/* Connections of a process that go through a relay: preloaded (LD_PRELOAD) into the processes under test.
 *
 * TESTS_LINES says which, as `port=port,...`: who connects to the first port of this machine is connected to the second
 * one, where `cut_off.py` passes bytes on, or does not. All other connections are left alone.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static in_port_t relayed(in_port_t port) {
    const char *text = getenv("TESTS_LINES");
    while (text && *text) {
        char *end;
        long from = strtol(text, &end, 10);
        if (*end != '=') return port;
        long to = strtol(end + 1, &end, 10);
        if (htons((in_port_t)from) == port) return htons((in_port_t)to);
        text = *end == ',' ? end + 1 : NULL;
    }
    return port;
}

int connect(int descriptor, const struct sockaddr *address, socklen_t length) {
    static int (*real)(int, const struct sockaddr *, socklen_t);
    if (!real) real = (int (*)(int, const struct sockaddr *, socklen_t))dlsym(RTLD_NEXT, "connect");
    if (address && address->sa_family == AF_INET && length >= sizeof(struct sockaddr_in)) {
        struct sockaddr_in changed;
        memcpy(&changed, address, sizeof changed);
        if (changed.sin_addr.s_addr == htonl(INADDR_LOOPBACK)) {
            changed.sin_port = relayed(changed.sin_port);
            return real(descriptor, (struct sockaddr *)&changed, sizeof changed);
        }
    }
    if (address && address->sa_family == AF_INET6 && length >= sizeof(struct sockaddr_in6)) {
        struct sockaddr_in6 changed;
        memcpy(&changed, address, sizeof changed);
        struct in_addr inner;
        memcpy(&inner, changed.sin6_addr.s6_addr + 12, sizeof inner);
        if (IN6_IS_ADDR_V4MAPPED(&changed.sin6_addr) && inner.s_addr == htonl(INADDR_LOOPBACK)) {
            changed.sin6_port = relayed(changed.sin6_port);
            return real(descriptor, (struct sockaddr *)&changed, sizeof changed);
        }
    }
    return real(descriptor, address, length);
}
