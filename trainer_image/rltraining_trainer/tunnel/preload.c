/* Leads the connections of torch through this pod's tunnel (process.py), which encrypts them.
 *
 * torch's RPC and gloo exchange their own addresses and connect to them directly, so they would not use a proxy at another
 * address. This library, which must be preloaded, replaces three functions for calls from torch's libraries. `connect` sends the
 * destination to the tunnel, and connects to the tunnel instead. `accept4` and `accept` return only connections from this pod,
 * whose tunnel has authenticated the other side. All other libraries connect as usual. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { ANNOUNCE_MILLISECONDS = 200 };

typedef union {
  struct sockaddr any;
  struct sockaddr_in v4;
  struct sockaddr_in6 v6;
} address;

/* Whether the function that returns to `caller` belongs to torch. Official wheels contain TensorPipe, libuv and gloo in libtorch. */
static int is_torch(void *caller) {
  static const char prefix[] = "/libtorch";
  Dl_info library;
  const char *name = dladdr(caller, &library) && library.dli_fname ? strrchr(library.dli_fname, '/') : NULL;
  return name && !strncmp(name, prefix, sizeof prefix - 1);
}

static void *next(const char *name) {
  void *found = dlsym(RTLD_NEXT, name);
  if (!found)
    abort();
  return found;
}

typedef int (*connect_function)(int, const struct sockaddr *, socklen_t);

static connect_function original_connect(void) {
  static connect_function original;
  if (!original)
    *(void **)&original = next("connect");
  return original;
}

static int is_tcp(int fd, const struct sockaddr *to, socklen_t size) {
  int type = 0;
  socklen_t type_size = sizeof type;
  return size >= sizeof to->sa_family && (to->sa_family == AF_INET || to->sa_family == AF_INET6) &&
         !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_size) && type == SOCK_STREAM;
}

static in_port_t *port_of(address *of) { return of->any.sa_family == AF_INET ? &of->v4.sin_port : &of->v6.sin6_port; }

/* Sends "LOCAL-PORT ADDRESS PORT" to the tunnel at `path`: a connection that it will receive, and its destination. While
 * the tunnel is busy, the queue of such messages is full: it has 10 by default. Waits for at most ANNOUNCE_MILLISECONDS. */
static int announce(const char *path, int local_port, address *to) {
  char host[INET6_ADDRSTRLEN] = "", line[128];
  const void *number = to->any.sa_family == AF_INET ? (const void *)&to->v4.sin_addr : (const void *)&to->v6.sin6_addr;
  inet_ntop(to->any.sa_family, number, host, sizeof host);
  int size = snprintf(line, sizeof line, "%d %s %d", local_port, host, ntohs(*port_of(to)));
  struct sockaddr_un tunnel = {.sun_family = AF_UNIX};
  strncpy(tunnel.sun_path, path, sizeof tunnel.sun_path - 1);
  int control = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (control < 0)
    return -1;
  int sent = -1;
  if (!original_connect()(control, (struct sockaddr *)&tunnel, sizeof tunnel)) {
    struct pollfd room = {.fd = control, .events = POLLOUT};
    poll(&room, 1, ANNOUNCE_MILLISECONDS);
    sent = send(control, line, size, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  close(control);
  return sent == size ? 0 : -1;
}

int connect(int fd, const struct sockaddr *to, socklen_t size) {
  connect_function original = original_connect();
  if (!is_tcp(fd, to, size) || !is_torch(__builtin_return_address(0)))
    return original(fd, to, size);
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
  socklen_t local_size = to->sa_family == AF_INET ? sizeof local.v4 : sizeof local.v6;
  const char *port = getenv("RLTRAINING_TUNNEL_PORT"), *path = getenv("RLTRAINING_TUNNEL");
  /* Choose the local port first, so that the tunnel has the destination when the connection arrives. */
  if (!port || !path || bind(fd, &local.any, local_size) || getsockname(fd, &local.any, &local_size) ||
      announce(path, ntohs(*port_of(&local)), &target)) {
    errno = ECONNREFUSED; /* the tunnel is being restarted: TensorPipe ends the process for most other errors */
    return -1;
  }
  *port_of(&tunnel) = htons(atoi(port));
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

/* Accepts the next connection; with `guarded` closes the connections before it that are not local. */
static int accept_next(int fd, struct sockaddr *from, socklen_t *size, int flags, int guarded) {
  static int (*original)(int, struct sockaddr *, socklen_t *, int);
  if (!original)
    *(void **)&original = next("accept4");
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

int accept4(int fd, struct sockaddr *from, socklen_t *size, int flags) {
  return accept_next(fd, from, size, flags, is_torch(__builtin_return_address(0)));
}

int accept(int fd, struct sockaddr *from, socklen_t *size) { return accept_next(fd, from, size, 0, is_torch(__builtin_return_address(0))); }
