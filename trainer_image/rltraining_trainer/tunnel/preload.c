/* Leads the connections of torch through this pod's tunnel (tunnel_process.py), which encrypts them.
 *
 * torch's RPC and gloo exchange their own addresses and connect to them directly, so a proxy at other addresses would be passed
 * by. This library, which must be preloaded, replaces two functions for calls from libtorch. `connect` tells the tunnel where the
 * connection should lead, and connects to the tunnel. `accept4` and `accept` return only connections from this pod, whose
 * tunnel has authenticated the other side. All other libraries connect as usual. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

typedef union {
  struct sockaddr any;
  struct sockaddr_in v4;
  struct sockaddr_in6 v6;
} address;

/* Whether the function that returns to `caller` is torch's, in a process with a tunnel. */
static int is_torch(void *caller) {
  Dl_info library;
  return getenv("RLTRAINING_TUNNEL") && dladdr(caller, &library) && library.dli_fname && strstr(library.dli_fname, "/libtorch");
}

static int is_ip(const struct sockaddr *to) { return to->sa_family == AF_INET || to->sa_family == AF_INET6; }

static void *next(const char *name) {
  void *found = dlsym(RTLD_NEXT, name);
  if (!found)
    abort();
  return found;
}

/* Sends "PORT ADDRESS PORT" to the tunnel: the local port of a connection that will arrive, and where it should lead. */
static int announce(int port, const address *to) {
  char host[INET6_ADDRSTRLEN] = "", line[128];
  int v4 = to->any.sa_family == AF_INET;
  inet_ntop(to->any.sa_family, v4 ? (const void *)&to->v4.sin_addr : (const void *)&to->v6.sin6_addr, host, sizeof host);
  int size = snprintf(line, sizeof line, "%d %s %d", port, host, ntohs(v4 ? to->v4.sin_port : to->v6.sin6_port));
  struct sockaddr_un tunnel = {.sun_family = AF_UNIX};
  strncpy(tunnel.sun_path, getenv("RLTRAINING_TUNNEL"), sizeof tunnel.sun_path - 1);
  int control = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (control < 0)
    return -1;
  int sent = sendto(control, line, size, 0, (struct sockaddr *)&tunnel, sizeof tunnel);
  close(control);
  return sent == size ? 0 : -1;
}

int connect(int fd, const struct sockaddr *to, socklen_t size) {
  static int (*original)(int, const struct sockaddr *, socklen_t);
  if (!original)
    *(void **)&original = next("connect");
  int type = 0;
  socklen_t type_size = sizeof type;
  const char *port = getenv("RLTRAINING_TUNNEL_PORT");
  if (!port || size < sizeof to->sa_family || !is_ip(to) || getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_size) || type != SOCK_STREAM ||
      !is_torch(__builtin_return_address(0)))
    return original(fd, to, size);
  /* Choose the local port first, so that the tunnel knows the connection when it arrives. */
  address target, local, tunnel;
  memset(&target, 0, sizeof target);
  memset(&local, 0, sizeof local);
  memcpy(&target, to, size < sizeof target ? size : sizeof target);
  local.any.sa_family = to->sa_family;
  if (to->sa_family == AF_INET)
    local.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  else
    local.v6.sin6_addr = in6addr_loopback;
  tunnel = local;
  *(to->sa_family == AF_INET ? &tunnel.v4.sin_port : &tunnel.v6.sin6_port) = htons(atoi(port));
  socklen_t local_size = to->sa_family == AF_INET ? sizeof local.v4 : sizeof local.v6;
  if (bind(fd, &local.any, local_size) || getsockname(fd, &local.any, &local_size) ||
      announce(ntohs(to->sa_family == AF_INET ? local.v4.sin_port : local.v6.sin6_port), &target)) {
    errno = ECONNREFUSED; /* the tunnel is being restarted: TensorPipe ends the process for most other errors */
    return -1;
  }
  return original(fd, &tunnel.any, local_size);
}

/* Whether a connection has one address at both ends, as only connections within a pod have. */
static int is_local(int fd) {
  address here, there;
  socklen_t here_size = sizeof here, there_size = sizeof there;
  memset(&here, 0, sizeof here);
  memset(&there, 0, sizeof there);
  if (getsockname(fd, &here.any, &here_size) || getpeername(fd, &there.any, &there_size))
    return 0;
  if (here.any.sa_family == AF_INET)
    return here.v4.sin_addr.s_addr == there.v4.sin_addr.s_addr;
  if (here.any.sa_family == AF_INET6)
    return !memcmp(&here.v6.sin6_addr, &there.v6.sin6_addr, sizeof here.v6.sin6_addr);
  return 1; /* a Unix socket */
}

int accept4(int fd, struct sockaddr *from, socklen_t *size, int flags) {
  static int (*original)(int, struct sockaddr *, socklen_t *, int);
  if (!original)
    *(void **)&original = next("accept4");
  int guarded = is_torch(__builtin_return_address(0));
  for (;;) {
    socklen_t room = size ? *size : 0;
    int accepted = original(fd, from, size ? &room : NULL, flags);
    if (accepted < 0 || !guarded || is_local(accepted)) {
      if (size)
        *size = room;
      return accepted;
    }
    close(accepted);
  }
}

int accept(int fd, struct sockaddr *from, socklen_t *size) {
  static int (*original)(int, struct sockaddr *, socklen_t *);
  if (!original)
    *(void **)&original = next("accept");
  int guarded = is_torch(__builtin_return_address(0));
  for (;;) {
    socklen_t room = size ? *size : 0;
    int accepted = original(fd, from, size ? &room : NULL);
    if (accepted < 0 || !guarded || is_local(accepted)) {
      if (size)
        *size = room;
      return accepted;
    }
    close(accepted);
  }
}
