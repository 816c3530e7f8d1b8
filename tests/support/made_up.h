/* SPDX-License-Identifier: Apache-2.0 */
/* A folder that stands for "/", with the files of /sys and /proc that a test writes into it. */
#ifndef TEST_SUPPORT_MADE_UP_H
#define TEST_SUPPORT_MADE_UP_H

void made_up_begin(char root[64]); /* makes it */
void made_up_end(const char *root);
/* A file with one line, and the folders that lead to it. */
void made_up_file(const char *root, const char *path, const char *line);
/* An InfiniBand adapter mlx5_0 with interface ib0, an Ethernet card eth0, and lo. */
void made_up_node(const char *root);
/* "Max locked memory", as /proc/self/limits has it: a number or "unlimited". */
void made_up_memlock(const char *root, const char *limit);

#endif
