/* SPDX-License-Identifier: Apache-2.0 */
/* A file of a tmpfs in our address space, and memory that goes back to the system. */
#ifndef HEARTH_CORE_BASE_MAP_H
#define HEARTH_CORE_BASE_MAP_H

#include <stdint.h>

/* len bytes of fd from 0 on, shared, at an address that huge pages can use: elsewhere each of its
 * 4096-byte pages is a fault of its own. Neither a child nor a core dump gets a copy. munmap()
 * with the same length. NULL and errno. */
void *hth_map_shared(int fd, uint64_t len, int prot);

/* The same to read, and private: a copy that was made sparse has holes, which become zeros here and
 * take no room of the file's mount. munmap() with the same length. NULL and errno. */
const void *hth_map_sparse(int fd, uint64_t len);

/* len bytes of zeros that no child gets. NULL and errno. Unmapping returns the memory to the system
 * at once; free() keeps memory that lies between other allocations. */
void *hth_map_memory(uint64_t len);
void hth_unmap_memory(void *at, uint64_t len);

#endif
