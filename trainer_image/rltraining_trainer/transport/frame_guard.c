/* Refuses to allocate what foreign bytes on the RPC port ask for.
 *
 * TensorPipe reads the length of a frame from the connection, and allocates and clears that number of bytes before the client
 * is authenticated: eight bytes of any client take gigabytes. TensorPipe calls operator new[] for this in a separate thread.
 * This library replaces operator new[] and must be loaded before torch. A frame holds a message's description, not its
 * tensors: one of a thousand tensors has 100 kB. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

enum { FRAME_BYTES_MAX = 4 << 20 };

/* operator new[](unsigned long) */
void *_Znam(unsigned long size) {
  static void *(*allocate)(unsigned long);
  if (size > FRAME_BYTES_MAX) {
    char thread[16] = "";
    prctl(PR_GET_NAME, thread);
    if (strcmp(thread, "TP_UV_loop") == 0)
      abort(); /* as TensorPipe does itself when there is no memory: see gate.cpp */
  }
  if (allocate == NULL) {
    void *library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
    *(void **)&allocate = library ? dlsym(library, "_Znam") : NULL;
    if (allocate == NULL)
      return malloc(size ? size : 1);
  }
  return allocate(size);
}
