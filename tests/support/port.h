/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PORT_H
#define PORT_H

#include <stdint.h>

/*
 * A TCP port for a listener that binds with SO_REUSEADDR, at any IPv4 address or all. No other
 * process gets it while this process lives, though there is no listener yet. If no port is left,
 * the process ends with a sentence.
 */
uint16_t port_keep(void);

#endif
